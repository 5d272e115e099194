"""Files of CSV: their rows as columns of text, and columns as rows."""

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from natgrad._text import listed
from natgrad.data._columns import is_number, is_text, require
from natgrad.data._texts import TextColumn, TextTable
from natgrad.errors import InputError


SEPARATORS = ",;\t|"
ROWS = 10_000
"""How many rows are turned into columns, or written, at a time."""


def read(path: Path, columns: Sequence[str] | None = None) -> TextTable:
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
    table = TextTable(dict(zip(names, parts, strict=True)), count, separator == ";")
    return table if columns is None else table.select(columns)


def _header(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if all(map(is_number, names)):
        raise InputError(
            f"the first line is {listed(names)}, which are numbers; it should name "
            "the columns"
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"it has more than one column {min(twice)!r}")
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


def write(file: BinaryIO, columns: Mapping[str, Any]) -> None:
    """Writes columns of text, NumPy or Arrow; texts are quoted, and gaps are empty."""
    file.write((",".join(map(_quoted, columns)) + "\n").encode())
    lines = zip(*map(_cells, columns.values()), strict=True)
    while some := [*itertools.islice(lines, ROWS)]:
        file.write("".join(",".join(line) + "\n" for line in some).encode())


def _cells(column: Any) -> Iterable[str]:
    """The values of a column as CSV has them."""
    if isinstance(column, TextColumn):
        is_quoted, values = column.type == "text", column.texts
        if column.type == "number":
            values = [v if v is None else v.replace(",", ".") for v in values]
    elif hasattr(column, "cast"):  # of Arrow
        import pyarrow as arrow

        is_quoted = is_text(column.type)
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = column.cast(arrow.string()).to_pylist()
    else:
        values = np.ma.asarray(column)
        is_quoted, values = values.dtype.kind in "OUT", values.tolist()
    shown = _quoted if is_quoted else str
    return ("" if value is None else shown(value) for value in values)


def _quoted(value: Any) -> str:
    text = str(value).replace('"', '""')
    return f'"{text}"'
