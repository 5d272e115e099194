"""Row groups as arrays: the inputs by a schema, and the target."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad._text import naming
from natgrad.data._columns import require
from natgrad.data._dataset import ParquetDataset
from natgrad.data._encoding import Number
from natgrad.data._schema import Encoded, Schema
from natgrad.data._table import kind_of
from natgrad.errors import InputError


class Rows(NamedTuple):
    """Inputs, targets, and which rows have no null."""

    x: np.ndarray
    y: np.ndarray
    is_complete: np.ndarray


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
        self.is_text = kind_of(kind) in ("text", "truth")
        kinds = [
            dataset.schema.field(column.name).type
            for column in schema.columns
            if isinstance(column, Number)
        ]
        self.width = len(schema.features)
        self.dtype = np.float32 if all(map(_is_short, kinds)) else np.float64

    def read(self, pieces: Sequence[tuple[int, int, int]]) -> Rows:
        """Some rows of some row groups: (place, begin, end), one after the other.

        A row with a null, where such are dropped, holds the values of another row.
        """
        size = sum(end - begin for _, begin, end in pieces)
        x = np.empty((size, self.width), self.dtype)
        y, is_complete, done = [], np.empty(size, bool), 0
        for place, begin, end in pieces:
            part = slice(done, done := done + end - begin)
            encoded = self._read(place, begin, end, x[part])
            is_complete[part] = encoded.is_complete
            y.append(encoded.y)
        targets = np.concatenate(y)
        if not is_complete.all():
            first = is_complete.argmax()
            whole = x[first], targets[first]
            x[~is_complete], other = whole if is_complete[first] else self._example
            targets = np.where(is_complete, targets, other)
        return Rows(x, targets, is_complete)

    @functools.cached_property
    def _example(self) -> tuple[np.ndarray, Any]:
        """The inputs and the target of the first row without a null."""
        for place in range(len(self.dataset)):
            x, is_complete, y = self._read(place, 0, int(self.dataset.rows[place]))
            if is_complete.any():
                row = is_complete.argmax()
                return x[row], y[row]
        raise InputError(f"{self.dataset.paths[0]}: there is no row without a null")

    def _read(
        self, place: int, begin: int, end: int, out: np.ndarray | None = None
    ) -> Encoded:
        table = self.dataset.read(place, self.columns).slice(begin, end - begin)
        with naming(self.dataset.where(place)):
            encoded = self.schema.encode(table, self.target, out, str)
        if not _is_short(table[self.target].type) or encoded.y.dtype.kind == "U":
            return encoded
        return encoded._replace(y=encoded.y.astype(np.float32))


def _is_short(kind: Any) -> bool:
    """Whether numbers of a type are kept exactly in 32 bits of floating point."""
    from pyarrow import types

    if types.is_integer(kind):
        return kind.bit_width <= 16
    return types.is_float32(kind) or types.is_float16(kind) or types.is_boolean(kind)
