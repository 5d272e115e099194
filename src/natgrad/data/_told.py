"""Columns that come with a target, among those that are read from disk."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from natgrad.data._batch import Columns
from natgrad.data._columns import listed
from natgrad.data._encoding import Number
from natgrad.data._schema import Schema
from natgrad.errors import InputError


class Told:
    """The last columns of a schema, which come with the target and are no inputs.

    `inputs` is the schema of all others.
    """

    def __init__(self, schema: Schema, columns: Mapping[str, str] | None):
        self.columns = dict(columns or {})
        number = len(schema.columns) - len(self.columns)
        last = schema.columns[number:]
        wrong = [each.name for each in last if not isinstance(each, Number)]
        if [each.name for each in last] != [*self.columns.values()] or wrong:
            raise InputError(
                f"{listed(map(repr, wrong or self.columns.values()))} should be "
                "columns of numbers, the last of the schema, as they come with the "
                "target"
            )
        self.inputs = dataclasses.replace(schema, columns=schema.columns[:number])
        self.width = len(self.inputs.features)
        self._has_gaps = [each.has_gaps for each in last]

    def split(self, x: np.ndarray) -> tuple[np.ndarray, Columns]:
        """The inputs in a matrix, and the other columns, NaN where they are null."""
        if not self.columns:
            return x, {}
        told: Columns = {}
        place = self.width
        for name, has_gaps in zip(self.columns, self._has_gaps, strict=True):
            told[name] = x[..., place]
            if has_gaps:  # then the next says where
                told[name] = np.where(x[..., place + 1] > 0, np.nan, told[name])
            place += 1 + has_gaps
        return np.ascontiguousarray(x[..., : self.width]), told
