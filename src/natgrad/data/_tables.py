"""Tables in files: CSV and Parquet, as named columns and as a matrix of numbers."""

import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad._atomic import replacing as replacing
from natgrad._config import NULLS
from natgrad._printable import naming
from natgrad.data._columns import (
    coded,
    counted as counted,
    dates,
    is_category,
    is_date,
    is_number,
    is_text as is_text,
    listed,
    numbers as numbers,
    refuse_nulls,
    require as require,
    target_of,
)
from natgrad.errors import InputError


MAX_VALUES = 100
"""How many different values a category may have: more of them are names, or text."""

SEPARATORS = ",;\t|"


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers; `mean` stands for a null, where nulls are filled."""

    name: str
    mean: float | None = None

    @property
    def features(self) -> list[str]:
        return [self.name]

    def encode(self, column: Any) -> np.ndarray:
        """The column as a matrix of one column, where nulls are NaN."""
        values = numbers(column, self.name)
        if self.mean is not None:
            values = np.where(np.isnan(values), self.mean, values)
        return values[:, None]


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of one of several values; each becomes a column of zeros and ones.

    Where nulls are filled, a null is a row of zeros: none of the values.
    """

    name: str
    values: tuple[str, ...]
    is_filled: bool = False

    @property
    def features(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values]

    def encode(self, column: Any) -> np.ndarray:
        """The column as an indicator of each value, where nulls are NaN."""
        import pyarrow as arrow
        from pyarrow import compute

        codes, texts = coded(column)
        given = arrow.array(texts, arrow.string())
        known = compute.call_function(
            "index_in", [given], compute.SetLookupOptions(arrow.array(self.values))
        )
        places = np.append(np.asarray(known.fill_null(-1)), -1)[codes]
        is_unknown = (places < 0) & (codes >= 0)
        if is_unknown.any():
            row, number = is_unknown.argmax(), is_unknown.sum()
            count = f", and {number - 1} more" if number > 1 else ""
            raise InputError(
                f"column {self.name!r} has the value {texts[codes[row]]!r} in row "
                f"{row}{count}, which the model was not trained on; it knows "
                f"{listed(self.values)}"
            )
        matrix = np.zeros((len(codes), len(self.values)))
        rows = np.flatnonzero(codes >= 0)
        matrix[rows, places[rows]] = 1.0
        if not self.is_filled:
            matrix[codes < 0] = np.nan
        return matrix


class Encoded(NamedTuple):
    """A table as numbers, which of its rows have no null, and targets if asked for."""

    x: np.ndarray
    is_complete: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Schema:
    """What the inputs of a model are, and so how a table becomes a matrix.

    `nulls` is what is done about them: an "error", which names the first; "drop", which
    marks rows with one as not whole; or "mean", which puts the mean of the training
    rows in the place of a number, and none of its values in that of a category.
    """

    columns: tuple[Number | Category, ...]
    nulls: str = "error"

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """What the columns of the matrix are called."""
        return [name for column in self.columns for name in column.features]

    def encode(self, table: Any, target: str | None = None) -> Encoded:
        """The inputs in a table, and its target; other columns are ignored."""
        require(table.column_names, self.names)
        parts = [column.encode(table[column.name]) for column in self.columns]
        for column, part in zip(self.columns, parts, strict=True):
            if self.nulls != "drop":
                refuse_nulls(np.asarray(np.isnan(part).any(1)), column.name)
        x = np.concatenate(parts, axis=1)
        is_complete = np.asarray(np.isfinite(x).all(axis=1))
        if target is None:
            return Encoded(x, is_complete, np.zeros(0))
        require(table.column_names, [target])
        y, is_there = target_of(table[target], target)
        if self.nulls != "drop":
            refuse_nulls(~is_there, target, is_target=True)
        return Encoded(x, is_complete & is_there, y)

    def to_dict(self) -> dict[str, Any]:
        """The schema in values that JSON has."""
        columns = [
            {"kind": type(column).__name__.lower()} | dataclasses.asdict(column)
            for column in self.columns
        ]
        for column in columns:
            if "values" in column:
                column["values"] = list(column["values"])
        return {"columns": columns, "nulls": self.nulls}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "Schema":
        kinds: dict[str, Callable[..., Number | Category]] = {
            "number": Number,
            "category": lambda values, **rest: Category(values=tuple(values), **rest),
        }
        try:
            columns = tuple(
                kinds[column["kind"]](
                    **{k: v for k, v in column.items() if k != "kind"}
                )
                for column in described["columns"]
            )
            return cls(columns, described["nulls"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"the schema {described!r:.60} cannot be read: {error}"
            ) from error


def infer(table: Any, inputs: Sequence[str], nulls: str = "error") -> Schema:
    """The schema of a table's columns, as they are to be inputs.

    Numbers and truth values are numbers, strings are categories with the values that
    are there, in the order of the alphabet.
    """
    if nulls not in NULLS:
        raise InputError(f"nulls is {nulls!r}; it should be one of {listed(NULLS)}")
    if not inputs:
        raise InputError("there are no inputs; a model needs at least one column")
    require(table.column_names, inputs)
    columns: list[Number | Category] = []
    for name in inputs:
        column = table[name]
        if is_category(column.type):
            codes, texts = coded(column)
            seen = {texts[code] for code in np.unique(codes[codes >= 0])}
            columns.append(described(name, nulls, values=seen))
        elif column.null_count == len(column):
            columns.append(described(name, nulls))
        else:
            values = numbers(column, name)
            is_there = ~np.isnan(values)
            mean = values[is_there].mean() if is_there.any() else None
            columns.append(described(name, nulls, mean=mean))
    return Schema(tuple(columns), nulls)


def described(
    name: str, nulls: str, values: Iterable[str] = (), mean: Any = None
) -> Number | Category:
    """An input by what is in it: the values of a category, or the mean of numbers."""
    if mean is not None:
        return Number(name, float(mean) if nulls == "mean" else None)
    texts = sorted(values)
    if not texts:
        raise InputError(f"column {name!r} has no values; leave it out")
    if all(map(is_date, texts)):
        raise InputError(dates(f"column {name!r}", texts[0]))
    if len(texts) > MAX_VALUES:
        raise InputError(
            f"column {name!r} has {len(texts):,} different values; a category may have "
            f"{MAX_VALUES}: leave the column out, or make numbers of it"
        )
    return Category(name, tuple(texts), nulls == "mean")


def read(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Any:
    """The table in a file of CSV or Parquet, or some of its columns, in Arrow."""
    reader = {".parquet": _read_parquet, ".csv": _read_csv, ".tsv": _read_csv}
    path = Path(path)
    if path.suffix.lower() not in reader:
        raise InputError(f"{path} should be a file .parquet, .csv or .tsv")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}; it should be a file .parquet or .csv")
    with naming(path):
        table = reader[path.suffix.lower()](path, columns)
    counts = collections.Counter(table.column_names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InputError(f"{path} has more than one column {twice[0]!r}")
    if not len(table):
        raise InputError(f"{path} has no rows")
    return table


def write(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Writes columns to a file of CSV or Parquet, whole or not at all.

    The same columns give the same bytes. The path `-` is CSV on the standard output.
    """
    import pyarrow as arrow
    from pyarrow import csv, parquet

    table = arrow.table(dict(columns))
    if str(path) == "-":
        csv.write_csv(table, sys.stdout.buffer)
        return
    writers = {".parquet": parquet.write_table, ".csv": csv.write_csv}
    path = Path(path)
    if path.suffix.lower() not in writers:
        raise InputError(f"{path} should be a file .parquet or .csv")
    with replacing(path) as draft:
        writers[path.suffix.lower()](table, draft)


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if columns is not None:
            require(file.schema_arrow.names, columns)
        return file.read(columns=None if columns is None else list(columns))


def _read_csv(path: Path, columns: Sequence[str] | None) -> Any:
    from pyarrow import csv

    with path.open(encoding="utf-8-sig") as file:
        comments = 0
        while (first := file.readline()).startswith("#"):
            comments += 1
    if not first.strip():
        raise InputError("its first line is empty; it should name the columns")
    separator = max(SEPARATORS, key=first.count)
    lines = csv.ReadOptions(skip_rows=comments)
    convert = csv.ConvertOptions(strings_can_be_null=True)
    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    table = csv.read_csv(path, lines, parse, convert)
    names = [name.strip() for name in table.column_names]
    if all(map(is_number, names)):
        raise InputError(
            f"the first line is {listed(names)}, which are numbers; it should name "
            "the columns"
        )
    table = table.rename_columns(names)
    if columns is None:
        return table
    require(names, columns)
    return table.select(list(columns))
