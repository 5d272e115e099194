"""Columns as numbers: what a model sees of numbers, categories and dates."""

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from natgrad._annotations import Rule
from natgrad._config import FILLED, PERIODS
from natgrad._text import listed
from natgrad.data._columns import Column, is_date
from natgrad.errors import InputError, InputWarning, warn


MAX_VALUES = 100
"""How many different values a category may have: more of them are names, or text."""

WHOLE = re.compile(r"^(-?\d+)\.0$")
"""A whole number as pandas writes it where a column has gaps."""


class AbstractEncoding:
    """A column of a table as columns of a matrix.

    Where nulls are filled, a null is the mean of the training rows, or none of the
    values of a category. If the training rows had nulls, an indicator of them is the
    last column.
    """

    name: str
    has_gaps: bool

    @property
    def features(self) -> list[str]:
        """What the columns of the matrix are called."""
        missing = [f"{self.name} missing"] if self.has_gaps else []
        return [*self._features(), *missing]

    def expand(self, values: np.ndarray) -> np.ndarray:
        """What `read` returns as columns of a matrix, where nulls are NaN or filled."""
        parts = self._expand(values)
        if not self.has_gaps:
            return parts
        return np.concatenate([parts, np.isnan(values)[:, None]], axis=1)

    def read(self, column: Column) -> np.ndarray:
        """A column as one array of numbers, with NaN for a null."""
        raise NotImplementedError

    def _features(self) -> list[str]:
        raise NotImplementedError

    def _expand(self, values: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def describe(self) -> str:
        """What natgrad does with the column."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Number(AbstractEncoding):
    """A column of numbers or booleans."""

    name: str
    mean: float | None = None
    has_gaps: bool = False

    def read(self, column: Column) -> np.ndarray:
        return column.numbers()

    def _features(self) -> list[str]:
        return [self.name]

    def _expand(self, values: np.ndarray) -> np.ndarray:
        return _filled(values, self.mean)[:, None]

    def describe(self) -> str:
        if not self.has_gaps or self.mean is None:
            return "number"
        return f"number; gaps become the mean, {self.mean:.4g}, and an indicator"


@dataclasses.dataclass(frozen=True)
class Category(AbstractEncoding):
    """A column of one of several values; each becomes a column of zeros and ones.

    A value that is not among them is a row of zeros, with a warning.
    """

    name: str
    values: Annotated[
        tuple[str, ...],
        Rule(lambda texts: texts and len({*texts}) == len(texts), "distinct texts"),
    ]
    is_filled: bool = False
    has_gaps: bool = False

    def read(self, column: Column) -> np.ndarray:
        """The place of each row's value in `values`, -1 where it is not among them."""
        codes, texts = column.category_codes()
        known = {value: place for place, value in enumerate(self.values)}
        whole = lambda text: WHOLE.sub(r"\1", text)
        found = [known.get(text, known.get(whole(text), -1)) for text in texts]
        places = np.array([*found, np.nan])[codes]
        is_unknown = places < 0
        if is_unknown.any():
            unknown = texts[codes[is_unknown.argmax()]]
            warn(
                f"column {self.name!r} has the value {unknown!r}, which was not among "
                f"the training rows; natgrad takes it for none of "
                f"{listed(self.values)}",
                InputWarning,
            )
        return places

    def _features(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values]

    def _expand(self, values: np.ndarray) -> np.ndarray:
        matrix = (values[:, None] == np.arange(len(self.values))).astype(float)
        if not self.is_filled:
            matrix[np.isnan(values)] = np.nan
        return matrix

    def describe(self) -> str:
        gaps = ", and one for gaps" if self.has_gaps else ""
        number = len(self.values)
        kinds = f"{number} categories, a column each" if number > 1 else "1 category"
        return f"{kinds}{gaps}: {listed(self.values, 5)}"


@dataclasses.dataclass(frozen=True)
class Date(AbstractEncoding):
    """A column of dates or times, as days since the `first` of the training rows.

    `first` is in days since 1970, and `mean` in days since the first. Each of `periods`
    adds a sine and a cosine, which are 0 for a null.
    """

    name: str
    first: Annotated[float, Rule(lambda days: abs(days) < 1e6, "days since 1970")]
    mean: float | None = None
    has_gaps: bool = False
    periods: Annotated[
        tuple[str, ...],
        Rule(lambda texts: sorted({*texts} & {*PERIODS}) == sorted(texts), "periods"),
    ] = ()

    def read(self, column: Column) -> np.ndarray:
        """Days since 1970."""
        return column.days()

    def _features(self) -> list[str]:
        waves = [f"{self.name} {wave} {p}" for p in self.periods for wave in WAVES]
        return [f"{self.name} days", *waves]

    def _expand(self, values: np.ndarray) -> np.ndarray:
        parts = [_filled(values - self.first, self.mean)]
        for period in self.periods:
            angle = 2 * math.pi * values / PERIODS[period]
            zero = None if self.mean is None else 0.0
            parts += [_filled(np.sin(angle), zero), _filled(np.cos(angle), zero)]
        return np.stack(parts, axis=1)

    def describe(self) -> str:
        start = np.datetime64(0, "s") + np.timedelta64(round(self.first * 86400), "s")
        shown = str(start).removesuffix("T00:00:00").replace("T", " ")
        waves = [f"sine and cosine of the {period}" for period in self.periods]
        gaps = ["gaps become the mean and an indicator"] if self.has_gaps else []
        return "; ".join([f"date, in days since {shown}", *waves, *gaps])


WAVES = ("sine", "cosine")
KINDS = {"number": Number, "category": Category, "date": Date}
Encoding = Number | Category | Date


def describe(
    name: str,
    nulls: str,
    gaps: int,
    values: Iterable[str] = (),
    mean: Any = None,
    first: Any = None,
    periods: Sequence[str] = (),
) -> Encoding:
    """An input by what is in it: the values of a category, or the mean of numbers.

    Dates have a `first`; `gaps` is how many nulls there are.
    """
    has_gaps, is_filled = nulls == "indicator" and gaps > 0, nulls in FILLED
    if first is not None:
        mean = float(mean - first) if is_filled else None
        return Date(name, float(first), mean, has_gaps, tuple(periods))
    if mean is not None:
        return Number(name, float(mean) if is_filled else None, has_gaps)
    texts = sorted(values)
    if not texts:
        raise InputError(f"column {name!r} has no values; leave it out")
    if all(map(is_date, texts)):
        raise InputError(
            f"column {name!r} holds dates as text, such as {texts[0]:.40}; convert "
            "them, as with pandas.to_datetime, or leave the column out"
        )
    if len(texts) > MAX_VALUES:
        raise InputError(
            f"column {name!r} has {len(texts):,} different values, such as "
            f"{texts[0]!r:.40}; a category may have {MAX_VALUES}: leave the column "
            "out, or make numbers of it"
        )
    return Category(name, tuple(texts), is_filled, has_gaps)


def _filled(values: np.ndarray, filling: float | None) -> np.ndarray:
    return values if filling is None else np.where(np.isnan(values), filling, values)
