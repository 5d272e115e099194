"""Data sets by name: one comes with natgrad, others are downloaded."""

from typing import Any

import numpy as np

from natgrad.datasets._fetch import fetch as fetch
from natgrad.datasets._files import (
    absent,
    check,
    describe as describe,
    digest,
    folder as folder,
    motorcycle_path,
    names as names,
    path as path,
    read,
)
from natgrad.datasets._frames import Table as Table, frame as frame, tables as tables
from natgrad.datasets._registry import Dataset as Dataset
from natgrad.datasets._splits import (
    Split as Split,
    split as split,
    with_scaled_inputs as with_scaled_inputs,
    with_scaled_targets as with_scaled_targets,
)
from natgrad.errors import InputError


__all__ = [
    "load",
    "names",
    "fetch",
    "split",
    "with_scaled_inputs",
    "with_scaled_targets",
    "Split",
    "describe",
    "Dataset",
    "frame",
    "tables",
    "Table",
    "folder",
    "path",
]


def load(
    name: str, as_frame: bool = False, *, unverified: bool = False
) -> tuple[Any, Any]:
    """Loads the inputs and targets of a data set in `folder()`; `fetch` downloads it.

    You get arrays, or a pandas DataFrame and Series with `as_frame`. The target is the
    last column of the file. `load` refuses a file whose numbers do not match the
    checksum that natgrad knows, unless you pass `unverified=True`.

    "motorcycle" comes with natgrad: 133 measurements of a crash-test dummy's head
    acceleration (g) in the milliseconds after impact. Its noise is small at first, and
    then large.

    Raises:
        InputError: If the name is unknown, the file is missing or its checksum differs.

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> X.shape, y.shape
    ((133, 1), (133,))
    """
    if name == "motorcycle":
        return _motorcycle(as_frame)
    known, file = describe(name), path(name)
    if not file.is_file():
        raise InputError(absent(known, file))
    inputs, x, y = read(file)
    if digest(file) != known.sha256:
        check(known, str(file), x, y, unverified)
    return _framed(inputs, x, "target", y) if as_frame else (x, y)


def _motorcycle(as_frame: bool) -> tuple[Any, Any]:
    text = motorcycle_path().read_text("utf-8")
    names, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    values = np.array([row.split(",") for row in rows], dtype=float)
    x, y = values[:, :1], values[:, 1]
    inputs, target = names.split(",")
    return _framed([inputs], x, target, y) if as_frame else (x, y)


def _framed(inputs: list[str], x: np.ndarray, target: str, y: np.ndarray) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "frames need pandas: pip install pandas, or pass as_frame=False"
        ) from error
    return pandas.DataFrame(x, columns=pandas.Index(inputs)), pandas.Series(
        y, name=target
    )
