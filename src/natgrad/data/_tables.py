"""Tables in files: CSV and Parquet, as named columns."""

import collections
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natgrad._atomic import replacing as replacing
from natgrad._text import naming
from natgrad.data import _csv as csv
from natgrad.data._columns import is_text as is_text, require as require
from natgrad.data._texts import TextColumn
from natgrad.errors import InputError


def read(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Any:
    """The table in a file, or some of its columns.

    Of Parquet it is a table of Arrow; of CSV a `TextTable`, which needs no package.
    """
    reader = {".parquet": _read_parquet, ".csv": csv.read, ".tsv": csv.read}
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
        csv.write(sys.stdout.buffer, columns)
        return
    path = Path(path)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise InputError(f"{path} should be a file .parquet or .csv")
    with replacing(path) as draft:
        if path.suffix.lower() == ".csv":
            with draft.open("wb") as file:
                csv.write(file, columns)
            return
        from pyarrow import parquet

        parquet.write_table(as_arrow(columns), draft)


def as_arrow(columns: Mapping[str, Any]) -> Any:
    """Columns of text, NumPy or Arrow as a table of Arrow; what is masked is null."""
    import pyarrow as arrow

    def converted(column: Any) -> Any:
        if isinstance(column, TextColumn):
            return column.to_arrow()
        if isinstance(column, np.ma.MaskedArray):
            # Objects are texts, also where all of them are masked.
            kind = arrow.string() if column.dtype == object else None
            return arrow.array(column.data, kind, mask=np.ma.getmaskarray(column))
        return column

    return arrow.table({name: converted(column) for name, column in columns.items()})


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Any:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        if columns is not None:
            require(file.schema_arrow.names, columns)
        table = file.read(columns=None if columns is None else list(columns))
    counts = collections.Counter(table.column_names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InputError(f"it has more than one column {twice[0]!r}")
    return table
