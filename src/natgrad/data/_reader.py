"""Row groups as arrays: the inputs by a schema, and the target."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad._text import naming
from natgrad.data._columns import (
    is_text,
    is_truth,
    number_column,
    refuse_nulls,
    require,
    target_of,
)
from natgrad.data._dataset import ParquetDataset
from natgrad.data._encoding import Number
from natgrad.data._schema import Schema
from natgrad.errors import InputError


class Rows(NamedTuple):
    """Inputs, targets, and which rows have no null; all of them, if it is None."""

    x: np.ndarray
    y: np.ndarray
    is_complete: np.ndarray | None


class Reader:
    """Reads row groups of a data set, as matrices of inputs and a column of targets.

    Numbers are in 32 bits where all columns of them are, or are whole numbers that need
    no more. Targets are numbers or strings; truth values are the strings true and
    false.
    """

    def __init__(self, dataset: ParquetDataset, schema: Schema, target: str):
        require(dataset.names, [*schema.names, target])
        self.dataset, self.schema, self.target = dataset, schema, target
        self.columns = list(dict.fromkeys([*schema.names, target]))
        kind = dataset.schema.field(target).type
        self.is_text = is_text(kind) or is_truth(kind)
        kinds = [
            dataset.schema.field(column.name).type
            for column in schema.columns
            if isinstance(column, Number)
        ]
        self.width = len(schema.features)
        self.dtype = np.float32 if all(map(_is_short, kinds)) else np.float64
        self._example: Rows | None = None

    def read(self, pieces: Sequence[tuple[int, int, int]]) -> Rows:
        """Some rows of some row groups: (place, begin, end), one after the other.

        A row with a null, where such are dropped, holds the values of another row.
        """
        size = sum(end - begin for _, begin, end in pieces)
        x = np.empty((size, self.width), self.dtype)
        y, is_complete, done = [], np.ones(size, bool), 0
        for place, begin, end in pieces:
            part = slice(done, done := done + end - begin)
            y.append(self._read(place, begin, end, x[part], is_complete[part]))
        targets = np.concatenate(y)
        if is_complete.all():
            return Rows(x, targets, None)
        first = is_complete.argmax()
        whole = Rows(x[first], targets[first : first + 1], None)
        if not is_complete[first]:
            whole = self.example()
        x[~is_complete] = whole.x
        targets = np.where(is_complete, targets, whole.y)
        return Rows(x, targets, is_complete)

    def example(self) -> Rows:
        """The inputs and the target of the first row without a null."""
        for place in range(len(self.dataset)):
            if self._example is not None:
                break
            count = int(self.dataset.rows[place])
            x, is_complete = np.empty((count, self.width)), np.ones(count, bool)
            y = self._read(place, 0, count, x, is_complete)
            if is_complete.any():
                row = is_complete.argmax()
                self._example = Rows(x[row], y[row : row + 1], None)
        if self._example is None:
            raise InputError(f"{self.dataset.paths[0]}: there is no row without a null")
        return self._example

    def _read(
        self, place: int, begin: int, end: int, x: np.ndarray, is_complete: np.ndarray
    ) -> np.ndarray:
        """Fills in the inputs, and which rows are whole, and gives the targets."""
        table = self.dataset.read(place, self.columns).slice(begin, end - begin)
        with naming(self.dataset.where(place)):
            self._fill(table, x, is_complete)
            column = table[self.target]
            number = np.float32 if _is_short(column.type) else np.float64
            y, is_there = target_of(column, self.target, str, number)
            if self.schema.nulls != "drop":
                refuse_nulls(~is_there, self.target, is_target=True)
        is_complete &= is_there
        return y

    def _fill(self, table: Any, x: np.ndarray, is_complete: np.ndarray) -> None:
        done = 0
        for column in self.schema.columns:
            part = slice(done, done := done + len(column.features))
            if isinstance(column, Number) and not column.has_gaps:
                number_column(table[column.name], column.name, x[:, done - 1])
            else:
                x[:, part] = column.expand(column.read(table[column.name]))
        # One sum tells that all are finite: rare are the tables of which it does not.
        with np.errstate(all="ignore"):
            is_finite = np.isfinite(x.sum())
        if not is_finite:
            encoded = self.schema.encode(table)
            x[:] = encoded.x
            is_complete[:] = encoded.is_complete


def _is_short(kind: Any) -> bool:
    """Whether numbers of a type are kept exactly in 32 bits of floating point."""
    from pyarrow import types

    if types.is_integer(kind):
        return kind.bit_width <= 16
    return types.is_float32(kind) or types.is_float16(kind) or types.is_boolean(kind)
