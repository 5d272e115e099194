"""Tables in files: CSV and Parquet, as named columns."""

import csv
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from natgrad._atomic import replacing
from natgrad._text import listed, naming
from natgrad.data._columns import Column, is_number, require, require_distinct
from natgrad.data._table import Table, as_arrow, as_table
from natgrad.data._texts import parse_column
from natgrad.errors import InputError


SEPARATORS = ",;\t|"
ROWS = 10_000
"""How many rows are turned into columns, or written, at a time."""


def read(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Table:
    """The table in a file, or some of its columns; CSV needs no package."""
    reader = {".parquet": _read_parquet, ".csv": _read_csv, ".tsv": _read_csv}
    path = Path(path)
    if path.suffix.lower() not in reader:
        raise InputError(f"{path} should be a file .parquet, .csv or .tsv")
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}; it should be a file .parquet or .csv")
    with naming(path):
        table = reader[path.suffix.lower()](path, columns)
    if not len(table):
        raise InputError(f"{path} has no rows")
    return table


def write(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Writes columns to a file of CSV or Parquet, whole or not at all.

    The same columns give the same bytes. The path `-` is CSV on the standard output.
    """
    if str(path) == "-":
        write_csv(sys.stdout.buffer, columns)
        return
    path = Path(path)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise InputError(f"{path} should be a file .parquet or .csv")
    with replacing(path) as draft:
        if path.suffix.lower() == ".csv":
            with draft.open("wb") as file:
                write_csv(file, columns)
            return
        from pyarrow import parquet

        parquet.write_table(as_arrow(columns), draft)


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Table:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if columns is not None:
            require(file.schema_arrow.names, columns)
        return as_table(file.read(columns=None if columns is None else list(columns)))


def _read_csv(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The table in a file, or some of its columns.

    Lines before the header that begin with # are skipped. The separator is the most
    frequent one in the header, and files with semicolons may have decimal commas.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        while (first := file.readline()).startswith("#"):
            pass
        if not first.strip():
            raise InputError("its first line is empty; it should name the columns")
        separator = max(SEPARATORS, key=first.count)
        rows = csv.reader(
            itertools.chain([first], file),
            delimiter=separator,
            skipinitialspace=True,
            strict=True,
        )
        try:
            names = _header(next(rows))
            if columns is not None:
                require(names, columns)
            parts, count = _transposed(rows, len(names))
        except csv.Error as error:
            raise InputError(
                f"line {rows.line_num} cannot be read as CSV: {error}"
            ) from error
    has_commas = separator == ";"
    pairs = zip(names, parts, strict=True)
    each = {
        name: partial(parse_column, texts, name, has_commas) for name, texts in pairs
    }
    table = Table(each, count)
    return table if columns is None else table.select(columns)


def _header(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if all(map(is_number, names)):
        raise InputError(
            f"the first line is {listed(names)}, which are numbers; it should name "
            "the columns"
        )
    require_distinct(names)
    return names


def _transposed(rows: Any, width: int) -> tuple[list[list[str]], int]:
    """The columns of the rows that a reader gives, and how many rows there are."""
    columns: list[list[str]] = [[] for _ in range(width)]

    def checked() -> Iterator[list[str]]:
        for row in rows:
            if len(row) == width:
                yield row
            elif row:  # an empty line has no fields
                raise InputError(
                    f"line {rows.line_num} has {len(row)} fields, and the first line "
                    f"names {width} columns"
                )

    lines = checked()
    while some := [*itertools.islice(lines, ROWS)]:
        for column, part in zip(columns, zip(*some, strict=True), strict=True):
            column.extend(part)
    return columns, len(columns[0])


def write_csv(file: BinaryIO, columns: Mapping[str, Any]) -> None:
    """Writes columns of text, NumPy or Arrow; texts are quoted, and gaps are empty."""
    file.write((",".join(map(_quoted, columns)) + "\n").encode())
    lines = zip(*map(_cells, columns.values()), strict=True)
    while some := [*itertools.islice(lines, ROWS)]:
        file.write("".join(",".join(line) + "\n" for line in some).encode())


def _cells(column: Any) -> Iterable[str]:
    """The values of a column as CSV has them."""
    if isinstance(column, Column):
        is_quoted, values = column.kind == "text", column.to_texts()
    else:
        values = np.ma.asarray(column)
        is_quoted, values = values.dtype.kind in "OUT", values.tolist()
    shown = _quoted if is_quoted else str
    return ("" if value is None else shown(value) for value in values)


def _quoted(value: Any) -> str:
    text = str(value).replace('"', '""')
    return f'"{text}"'
