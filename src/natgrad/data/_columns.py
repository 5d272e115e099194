"""A column of a table, as numbers or as texts."""

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from natgrad._text import counted, listed, nearest
from natgrad.errors import InputError


LOOSE_DATE = re.compile(
    r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})"
    r"([T\s]+\d{1,2}:\d{2}.*)?\s*$"
)
"""With a year of four digits: 1.2.3 is a version, and not a day."""

NUMBERS = ("number", "truth", "empty")
"""Kinds of columns that are numbers in every library."""

CATEGORIES = ("text", "category")
"""Kinds of columns that are categories, where they are inputs."""

WORDS = {0: "false", 1: "true"}


@dataclasses.dataclass(eq=False)
class Column:
    """A column of a table: its values as they came in `source`, and as numbers.

    `kind` is "number", "truth", "time", "date", "text", "category" (of values that are
    no texts), "empty" or "other"; `inner` is that of a category's values, and `type`
    what its library calls it. `values` have NaN for a null: dates are days since 1970,
    in UTC if they have a time zone; times and durations are in days.
    """

    name: str
    kind: str
    type: str
    source: Any
    known: np.ndarray
    inner: str = ""

    def __post_init__(self) -> None:
        self.inner = self.inner or self.kind

    def __getitem__(self, rows: slice | np.ndarray) -> "Column":
        some = self.source[rows], self.values[rows]
        return Column(self.name, self.kind, self.type, *some, self.inner)

    @functools.cached_property
    def values(self) -> np.ndarray:
        return self.known

    def to_pylist(self) -> list[Any]:
        source = self.source
        if source.dtype.kind in "mM":  # NumPy makes integers of nanoseconds
            source = source.astype(f"{source.dtype.kind}8[us]")
        return source.tolist()

    def to_texts(self) -> list[str | None]:
        """Its values as CSV has them."""
        texts = self.to_pylist()
        if self.kind != "number":
            return texts
        return [text if text is None else text.replace(",", ".") for text in texts]

    def category_codes(self) -> tuple[np.ndarray, list[str]]:
        """The column as places in a list of texts, -1 for a null."""
        values = self.to_pylist()
        return code(values if self.kind == "text" else map(as_text, values))

    def label_codes(self) -> tuple[np.ndarray, list[str]]:
        """As `category_codes`; truth values are the texts true and false."""
        if self.kind != "truth":
            return self.category_codes()
        return code([WORDS.get(value) for value in self.values.tolist()])

    def numbers(self, allow_infinite: bool = False) -> np.ndarray:
        """The column in float64, with NaN for a null; durations in days."""
        if self.inner in ("date", "text", "other"):
            raise InputError(self.refusal())
        values = np.asarray(self.values, float)
        if not allow_infinite and np.isinf(values).any():
            count, row = np.isinf(values).sum(), np.isinf(values).argmax()
            raise InputError(
                f"column {self.name!r} has {counted(count, 'infinite value')}, the "
                f"first in row {row}; fix or drop them"
            )
        return values

    def days(self) -> np.ndarray:
        """A column of dates, times or durations in days, with NaN for a null."""
        if self.inner not in ("date", "time", "empty"):
            how = "dates: convert it with pandas.to_datetime or similar"
            raise InputError(self.refusal(how))
        return self.values

    def target(self, text: DTypeLike = object) -> tuple[np.ndarray, np.ndarray]:
        """A target as strings or as numbers, and which of its rows have one.

        Truth values are the strings true and false.
        """
        if self.kind in ("text", "truth"):
            codes, texts = self.label_codes()
            return np.array([*texts, ""], text)[codes], codes >= 0
        y = self.numbers()
        return y, ~np.isnan(y)

    def refusal(
        self, wanted: str = "numbers: make numbers of it, or leave it out"
    ) -> str:
        """What is wrong with the column, where something else is wanted."""
        if self.inner in ("date", "time"):
            return (
                f"column {self.name!r} holds dates or times, such as {self._first()}; "
                "it should be of numbers: convert it, such as to days since the first, "
                "or leave it out"
            )
        what = f"is of type {self.type}, such as {self._first()}"
        return f"column {self.name!r} {what}; it should be of {wanted}"

    def _first(self) -> str:
        """The first value, short."""
        values = (value for value in self.to_pylist() if not is_null(value))
        return f"{next(values, None)!s:.40}"


def code(texts: Iterable[str | None]) -> tuple[np.ndarray, list[str]]:
    """Texts as places in a list of those that differ, -1 for None."""
    places: dict[str | None, int] = {None: -1}
    codes = [places.setdefault(text, len(places) - 1) for text in texts]
    return np.array(codes, int), [text for text in places if text is not None]


def as_text(value: Any) -> str | None:
    """How a value of a category is written; a whole number has no decimals."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if is_null(value) else str(value)


def is_null(value: Any) -> bool:
    """Whether an object stands for no value, as None, NaN and the NA of pandas do."""
    if value is None or type(value).__name__ == "NAType":
        return True
    differs = value != value
    return np.ndim(differs) == 0 and bool(differs)


def refuse_nulls(is_null: np.ndarray, name: str, is_target: bool = False) -> None:
    """Raises if a column has nulls, and names the first."""
    if is_null.any():
        row, others = is_null.argmax(), "'drop'"
        others += "" if is_target else ", 'mean' or 'indicator'"
        raise InputError(
            f"column {name!r} has {counted(is_null.sum(), 'null')}, the first in row "
            f"{row}; fix them, or train with nulls {others}"
        )


def require(names: Iterable[str], wanted: Iterable[str]) -> None:
    """Raises unless a table has all columns that are asked for."""
    names = list(names)
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    word = "columns" if missing[1:] else "column"
    near = nearest(missing, names)
    # Those that were meant come first, as of many names not all are shown.
    shown = [*near, *(name for name in names if name not in near)]
    there = [
        str(name)
        if str(name).strip()
        else f"column {names.index(name) + 1} (without a name)"
        for name in shown
    ]
    hint = f"did you mean {near[0]!r}? It has" if near else "it has"
    raise InputError(
        f"the table has no {word} {listed(map(repr, missing))}; {hint} {listed(there)}"
    )


def require_distinct(names: list[str]) -> None:
    """Raises if two columns of a table have one name."""
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"it has more than one column {min(twice)!r}")


def is_date(text: str) -> bool:
    """Whether a text is a date, such as 2024-02-29, 2024/2/29 12:00 or 29.02.2024."""
    return LOOSE_DATE.match(text) is not None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
