"""Tables in files: CSV and Parquet, as named columns."""

import collections
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad._atomic import replacing as replacing
from natgrad._printable import naming
from natgrad.data._columns import (
    counted as counted,
    is_number,
    is_text as is_text,
    listed,
    require as require,
)
from natgrad.errors import InputError


SEPARATORS = ",;\t|"


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
