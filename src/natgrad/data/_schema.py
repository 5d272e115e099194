"""The schema of a table: what its columns are, and how they become a matrix."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad._config import NULLS
from natgrad._text import listed
from natgrad._warnings import warn
from natgrad.data._columns import (
    coded,
    days,
    is_category,
    is_timestamp,
    numbers,
    refuse_nulls,
    require,
    target_of,
)
from natgrad.data._encoding import (
    Category,
    Column,
    Number,
    describe,
    from_json,
    to_json,
)
from natgrad.errors import InputError, InputWarning


class Encoded(NamedTuple):
    """A table as numbers, which of its rows have no null, and targets if asked for."""

    x: np.ndarray
    is_complete: np.ndarray
    y: np.ndarray


class EncodedRows:
    """Rows that are numbers already, for an estimator that encodes all others.

    `columns` come with their targets.
    """

    def __init__(self, x: np.ndarray, columns: Mapping[str, np.ndarray] | None = None):
        self.x, self.shape, self.columns = x, x.shape, dict(columns or {})

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> "EncodedRows":
        columns = {name: column[rows] for name, column in self.columns.items()}
        return EncodedRows(self.x[rows], columns)


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the inputs of a model are, and so how a table becomes a matrix.

    `nulls` is what is done about them: an "error", which names the first; "drop", which
    marks rows with one as not whole; "mean", which puts the mean of the training rows
    in the place of a number, and none of its values in that of a category; or
    "indicator", which also adds a column that marks them, if training rows had some.
    """

    columns: tuple[Column, ...]
    nulls: str = "error"

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """What the columns of the matrix are called."""
        return [name for column in self.columns for name in column.features]

    @property
    def is_numeric(self) -> bool:
        """Whether all inputs are numbers, so that a table of them is a matrix."""
        return all(isinstance(column, Number) for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all inputs are numbers without gaps, and the matrix is the table."""
        return self.is_numeric and not any(column.has_gaps for column in self.columns)

    def encode(self, table: Any, target: str | None = None) -> Encoded:
        """The inputs in a table, and its target; other columns are ignored."""
        require(table.column_names, self.names)
        parts = [
            self._expand(column, column.read(table[column.name]))
            for column in self.columns
        ]
        x = np.concatenate(parts, axis=1)
        is_complete = np.asarray(np.isfinite(x).all(axis=1))
        if target is None:
            return Encoded(x, is_complete, np.zeros(0))
        require(table.column_names, [target])
        y, is_there = target_of(table[target], target)
        if self.nulls != "drop":
            refuse_nulls(~is_there, target, is_target=True)
        return Encoded(x, is_complete & is_there, y)

    def encode_matrix(self, x: np.ndarray) -> np.ndarray:
        """The inputs in a matrix with a column of numbers for each, NaN for a null."""
        if self.is_plain and not np.isnan(x).any():
            return x
        pairs = zip(self.columns, x.T, strict=True)
        return np.concatenate([self._expand(*pair) for pair in pairs], axis=1)

    def _expand(self, column: Column, values: np.ndarray) -> np.ndarray:
        is_null = np.isnan(values)
        if self.nulls == "error":
            refuse_nulls(is_null, column.name)
        if self.nulls == "indicator" and not column.has_gaps and is_null.any():
            what = "none of its values" if isinstance(column, Category) else "the mean"
            warn(
                f"column {column.name!r} has nulls, and the training rows had none; "
                f"natgrad takes {what} instead",
                InputWarning,
            )
        return column.expand(values)

    def to_dict(self) -> dict[str, Any]:
        """The schema in values that JSON has."""
        return {"columns": [*map(to_json, self.columns)], "nulls": self.nulls}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "Schema":
        """The schema that `to_dict` wrote.

        Raises:
            InputError: If it is not one.
        """
        try:
            columns = tuple(from_json(**column) for column in described["columns"])
            if described["nulls"] not in NULLS or not columns:
                raise ValueError(f"nulls {described['nulls']!r}")
            return cls(columns, described["nulls"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the schema {described!r:.60} cannot be read: {error}"
            ) from error


def infer(
    table: Any,
    inputs: Sequence[str],
    nulls: str = "error",
    periods: Sequence[str] = (),
) -> Schema:
    """The schema of a table's columns, as they are to be inputs.

    Numbers and truth values are numbers, strings are categories with the values that
    are there, in the order of the alphabet, and dates are days since the first.
    """
    if nulls not in NULLS:
        raise InputError(f"nulls is {nulls!r}; it should be one of {listed(NULLS)}")
    if not inputs:
        raise InputError("there are no inputs; a model needs at least one column")
    require(table.column_names, inputs)
    columns: list[Column] = []
    for name in inputs:
        column, known = table[name], {}
        gaps = column.null_count
        if is_category(column.type):
            codes, texts = coded(column)
            gaps = int((codes < 0).sum())
            known["values"] = {texts[code] for code in np.unique(codes[codes >= 0])}
        elif gaps < len(column):
            is_days = is_timestamp(column.type)
            values = days(column, name) if is_days else numbers(column, name)
            known = _summary(values, is_days)
            gaps = int(np.isnan(values).sum())
        columns.append(describe(name, nulls, gaps, periods=periods, **known))
    return Schema(tuple(columns), nulls)


def infer_numbers(x: np.ndarray, names: Sequence[str]) -> Schema:
    """The schema of a matrix of numbers, in which NaN is a null."""
    columns = []
    for name, values in zip(names, x.T, strict=True):
        gaps = int(np.isnan(values).sum())
        columns.append(describe(name, "indicator", gaps, **_summary(values, False)))
    return Schema(tuple(columns), "indicator")


def _summary(values: np.ndarray, is_days: bool) -> dict[str, Any]:
    there = values[~np.isnan(values)]
    if not len(there):
        return {}
    with np.errstate(over="ignore"):
        mean = there.mean()
    if not np.isfinite(mean):  # of values near the largest number
        mean = (there / len(there)).sum()
    return {"mean": mean} | ({"first": there.min()} if is_days else {})
