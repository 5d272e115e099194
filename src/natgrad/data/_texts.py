"""Columns of text, such as those of CSV, and what natgrad takes them for.

What is a gap, a number, a truth value, a time, a date or a text is decided here, of a
whole column at once.
"""

import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from natgrad.data._columns import Column
from natgrad.errors import InputError


GAPS = frozenset(
    ("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "NaN", "nan")
    + ("-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")
)
"""Texts that stand for no value."""

TRUTH = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
DATE = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?"
)
"""A date as ISO 8601 writes it; others, such as 28/02/2024, stay texts."""

EPOCH = datetime.datetime(1970, 1, 1)
DAY = datetime.timedelta(days=1)


def parse_column(
    texts: Sequence[str], name: str = "", has_commas: bool = False
) -> Column:
    """A column of texts, as natgrad takes it; spaces around a text do not count.

    Its `source` has None for a gap.
    """
    stripped: list[Any] = [*map(str.strip, texts)]
    is_there = np.ones(len(texts), bool)
    if not GAPS.isdisjoint(stripped):
        stripped = [None if text in GAPS else text for text in stripped]
        is_there = np.array([text is not None for text in stripped], bool)
    source = np.array(stripped, object)
    there = source[is_there].tolist()
    kind, values = ("text" if there else "empty"), np.full(len(source), np.nan)
    for each, parse in PARSERS.items() if there else ():
        found = parse(there)
        if found is None and each == "number" and has_commas:
            found = _comma_numbers(there, name)
        if found is not None:
            kind, values[is_there] = each, found
            break
    return Column(name, kind, kind, source, values)


def _numbers(texts: list[str]) -> list[float] | None:
    joined = "".join(texts)
    # Python takes 1_000, and digits of other scripts, for numbers.
    if "_" in joined or not joined.isascii():
        return None
    try:
        return [*map(float, texts)]
    except ValueError:
        return None


def _comma_numbers(texts: list[str], name: str) -> list[float] | None:
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
            f"column {name!r} has numbers such as {commas[0]}, whose comma may stand "
            f"before decimals or thousands; write {commas[0].replace(',', '')} or "
            f"{commas[0].replace(',', '.')}"
        )
    return found


def _truth(texts: list[str]) -> list[float] | None:
    words = [*map(str.lower, texts)]
    return [TRUTH[word] for word in words] if TRUTH.keys() >= set(words) else None


def _times(texts: list[str]) -> list[float] | None:
    if not all(map(TIME.fullmatch, texts)):
        return None
    return [day_part(datetime.time.fromisoformat(text)) for text in texts]


def day_part(time: datetime.time) -> float:
    """A time as a part of a day."""
    seconds = time.hour * 3600 + time.minute * 60 + time.second
    return (seconds + time.microsecond / 1e6) / 86400


def _dates(texts: list[str]) -> list[float] | None:
    if not all(map(DATE.fullmatch, texts)):
        return None
    try:
        # Python cannot subtract moments of which some have a time zone.
        zoned = {datetime.datetime.fromisoformat(text).tzinfo is None for text in texts}
        return [(moment(t) - EPOCH) / DAY for t in texts] if len(zoned) == 1 else None
    except ValueError:  # such as February the 30th
        return None


@functools.lru_cache(2**16)
def moment(text: str) -> datetime.datetime:
    """A date of ISO 8601, in UTC if it has a time zone."""
    return in_utc(datetime.datetime.fromisoformat(text))


def in_utc(date: datetime.datetime) -> datetime.datetime:
    return date.replace(tzinfo=None) - (date.utcoffset() or datetime.timedelta())


PARSERS: dict[str, Callable[[list[str]], list[float] | None]] = {
    "number": _numbers,
    "truth": _truth,
    "time": _times,
    "date": _dates,
}
"""Ways to read all texts of a column, in the order they are tried."""
