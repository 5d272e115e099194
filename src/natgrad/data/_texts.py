"""Columns of text, such as those of CSV, and what natgrad takes them for.

What is a gap, a number, a truth value, a time, a date or a text is decided here, of a
whole column at once.
"""

import contextlib
import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natgrad.errors import InputError


GAPS = frozenset(
    ("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "NaN", "nan")
    + ("-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")
)
"""Texts that stand for no value."""

TRUTH = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
WHOLE = re.compile(r"[+-]?\d+")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
DATE = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?"
)
"""A date as ISO 8601 writes it; others, such as 28/02/2024, stay texts."""

EPOCH = datetime.datetime(1970, 1, 1)
DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class TextColumn:
    """A column of texts, with None for a gap, and what natgrad takes it for.

    `type` is "number", "truth", "time", "date", "text" or, without any value, "empty".
    `values` are its numbers, with NaN for a gap: truth values are 0 and 1, times are
    parts of a day, and dates are days since 1970, in UTC if they have a time zone.
    """

    texts: np.ndarray
    type: str
    values: np.ndarray

    @property
    def null_count(self) -> int:
        return sum(text is None for text in self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: Any) -> "TextColumn":
        return TextColumn(self.texts[rows], self.type, self.values[rows])

    def to_pylist(self) -> list[str | None]:
        return self.texts.tolist()

    def to_numpy(self) -> np.ndarray:
        """Its numbers, or its texts if they are none."""
        return self.texts if self.type in ("text", "date") else self.values

    def to_arrow(self) -> Any:
        """The column in Arrow; whole numbers are integers."""
        import pyarrow as arrow

        is_gap = np.array([text is None for text in self.texts], bool)
        there = self.texts[~is_gap]
        if self.type == "truth":
            return arrow.array(self.values == 1, mask=is_gap)
        if self.type == "number":
            if not all(map(WHOLE.fullmatch, there)):
                return arrow.array(self.values, mask=is_gap)
            whole = [None if text is None else int(text) for text in self.texts]
            for kind in (arrow.int64(), arrow.uint64()):
                with contextlib.suppress(OverflowError):
                    return arrow.array(whole, kind)
        if self.type == "date":
            moments = [None if text is None else _moment(text) for text in self.texts]
            column = arrow.array(moments, arrow.timestamp("us"))
            is_day = max(map(len, there)) == len("2024-02-29")
            return column.cast(arrow.date32()) if is_day else column
        return arrow.array(self.texts, arrow.string())


class TextTable:
    """Columns of texts by name, with the methods of a table of Arrow that we use.

    What a column is taken for is decided when it is first asked for. Numbers have a
    decimal point or, if `has_commas`, a decimal comma.
    """

    def __init__(self, columns: dict[str, Any], rows: int, has_commas: bool = False):
        self._columns, self._rows, self._has_commas = columns, rows, has_commas

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> TextColumn:
        column = self._columns[name]
        if not isinstance(column, TextColumn):
            try:
                column = understood(column, self._has_commas)
            except InputError as error:
                raise InputError(f"column {name!r} {error}") from None
            self._columns[name] = column
        return column

    def column(self, place: int) -> TextColumn:
        return self[self.column_names[place]]

    def select(self, names: Sequence[str | int]) -> "TextTable":
        """Some columns, by name or by place."""
        every = self.column_names
        wanted = [name if isinstance(name, str) else every[name] for name in names]
        columns = {name: self._columns[name] for name in wanted}
        return TextTable(columns, self._rows, self._has_commas)

    def filter(self, mask: np.ndarray) -> "TextTable":
        """The rows for which `mask` is true."""
        return self._taken(mask, int(np.count_nonzero(mask)))

    def slice(self, start: int, length: int | None = None) -> "TextTable":
        """Some rows that follow each other."""
        end = self._rows if length is None else min(start + length, self._rows)
        return self._taken(slice(start, end), max(end - start, 0))

    def _taken(self, rows: Any, count: int) -> "TextTable":
        # What a column is taken for depends on all its rows, so it is decided before.
        return TextTable({name: self[name][rows] for name in self._columns}, count)


def understood(texts: Sequence[str], has_commas: bool = False) -> TextColumn:
    """A column of texts, as natgrad takes it; spaces around a text do not count."""
    stripped: list[Any] = [*map(str.strip, texts)]
    is_there = np.ones(len(texts), bool)
    if not GAPS.isdisjoint(stripped):
        stripped = [None if text in GAPS else text for text in stripped]
        is_there = np.array([text is not None for text in stripped], bool)
    column = np.array(stripped, object)
    there = column[is_there].tolist()
    values = np.full(len(column), np.nan)
    if not there:
        return TextColumn(column, "empty", values)
    for kind, parse in PARSERS.items():
        found = parse(there)
        if found is None and kind == "number" and has_commas:
            found = _comma_numbers(there)
        if found is not None:
            values[is_there] = found
            return TextColumn(column, kind, values)
    return TextColumn(column, "text", values)


def _numbers(texts: list[str]) -> list[float] | None:
    joined = "".join(texts)
    # Python takes 1_000, and digits of other scripts, for numbers.
    if "_" in joined or not joined.isascii():
        return None
    try:
        return [*map(float, texts)]
    except ValueError:
        return None


def _comma_numbers(texts: list[str]) -> list[float] | None:
    """Numbers with a decimal comma.

    Raises:
        InputError: If the commas may as well separate thousands.
    """
    if any("." in text for text in texts):
        return None
    found = _numbers([text.replace(",", ".") for text in texts])
    commas = [text for text in texts if "," in text]
    if found is not None and all(map(THOUSANDS.fullmatch, commas)):
        raise InputError(
            f"has numbers such as {commas[0]}, whose comma may stand before decimals "
            f"or thousands; write {commas[0].replace(',', '')} or "
            f"{commas[0].replace(',', '.')}"
        )
    return found


def _truth(texts: list[str]) -> list[float] | None:
    words = [*map(str.lower, texts)]
    return [TRUTH[word] for word in words] if TRUTH.keys() >= set(words) else None


def _times(texts: list[str]) -> list[float] | None:
    if not all(map(TIME.fullmatch, texts)):
        return None
    moments = map(datetime.time.fromisoformat, texts)
    return [(t.hour * 3600 + t.minute * 60 + t.second) / 86400 for t in moments]


def _dates(texts: list[str]) -> list[float] | None:
    if not all(map(DATE.fullmatch, texts)):
        return None
    try:
        # Python cannot subtract moments of which some have a time zone.
        zoned = {datetime.datetime.fromisoformat(text).tzinfo is None for text in texts}
        return [(_moment(t) - EPOCH) / DAY for t in texts] if len(zoned) == 1 else None
    except ValueError:  # such as February the 30th
        return None


@functools.lru_cache(2**16)
def _moment(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    zone = moment.utcoffset() or datetime.timedelta()
    return moment.replace(tzinfo=None) - zone


PARSERS: dict[str, Callable[[list[str]], list[float] | None]] = {
    "number": _numbers,
    "truth": _truth,
    "time": _times,
    "date": _dates,
}
"""Ways to read all texts of a column, in the order they are tried."""
