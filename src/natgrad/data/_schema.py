"""The schema of a table: what its columns are, and how they become a matrix."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from natgrad import _codec as codec
from natgrad._annotations import Rule
from natgrad._config import NULLS
from natgrad._text import listed, require_choice
from natgrad.data._columns import CATEGORIES, refuse_nulls, require
from natgrad.data._encoding import KINDS, Category, Encoding, Number, describe
from natgrad.data._table import as_table
from natgrad.errors import IncompatibleFileError, InputError, InputWarning, warn


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

    columns: Annotated[tuple[Encoding, ...], Rule(bool, "a list of columns")]
    nulls: Annotated[str, Rule(NULLS.__contains__, f"one of {listed(NULLS)}")] = "error"

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

    def encode(
        self,
        table: object,
        target: str | None = None,
        out: np.ndarray | None = None,
        text: type = object,
    ) -> Encoded:
        """The inputs in a table, and its target; other columns are ignored.

        The inputs are written to `out`, if it is given. Targets that are strings are an
        array of the type `text`.
        """
        table = as_table(table)
        require(table.column_names, self.names)
        x = np.empty((len(table), len(self.features))) if out is None else out
        done, plain = 0, {}
        for column in self.columns:
            if isinstance(column, Number) and not column.has_gaps:
                plain[done] = column
                some = table[column.name].numbers(allow_infinite=True)[:, None]
            else:
                some = self._expand(column, column.read(table[column.name]))
            x[:, done : (done := done + some.shape[1])] = some
        is_complete = np.full(len(x), True)
        # One sum tells that all are finite: rare are the tables of which it does not.
        with np.errstate(all="ignore"):
            is_finite = np.isfinite(x.sum())
        if not is_finite:
            for place, column in plain.items():
                some = self._expand(column, column.read(table[column.name]))
                x[:, [place]] = some
            is_complete = np.asarray(np.isfinite(x).all(axis=1))
        if target is None:
            return Encoded(x, is_complete, np.zeros(0))
        require(table.column_names, [target])
        y, is_there = table[target].target(text)
        if self.nulls != "drop":
            refuse_nulls(~is_there, target, is_target=True)
        return Encoded(x, is_complete & is_there, y)

    def encode_matrix(self, x: np.ndarray) -> np.ndarray:
        """The inputs in a matrix with a column of numbers for each, NaN for a null."""
        if self.is_plain and not np.isnan(x).any():
            return x
        pairs = zip(self.columns, x.T, strict=True)
        return np.concatenate([self._expand(*pair) for pair in pairs], axis=1)

    def _expand(self, column: Encoding, values: np.ndarray) -> np.ndarray:
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
        return codec.to_json(self, KINDS)

    @classmethod
    def from_dict(cls, described: Any) -> "Schema":
        """The schema that `to_dict` wrote.

        Raises:
            InputError: If it is not one.
        """
        try:
            return codec.from_json(described, cls, "schema", KINDS)
        except IncompatibleFileError as error:
            raise InputError(str(error)) from None


def infer(
    table: object,
    inputs: Sequence[str],
    nulls: str = "error",
    periods: Sequence[str] = (),
) -> Schema:
    """The schema of a table's columns, as they are to be inputs.

    Numbers and truth values are numbers, strings are categories with the values that
    are there, in the order of the alphabet, and dates are days since the first.
    """
    require_choice("nulls", nulls, NULLS)
    if not inputs:
        raise InputError("there are no inputs; a model needs at least one column")
    table = as_table(table)
    require(table.column_names, inputs)
    columns: list[Encoding] = []
    for name in inputs:
        column = table[name]
        if column.kind in CATEGORIES:
            codes, texts = column.category_codes()
            gaps = int((codes < 0).sum())
            values = {texts[code] for code in np.unique(codes[codes >= 0])}
            known: dict[str, Any] = {"values": values}
        else:
            is_days = column.kind == "date"
            numbers = column.days() if is_days else column.numbers()
            known = _summary(numbers, is_days)
            gaps = int(np.isnan(numbers).sum())
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
