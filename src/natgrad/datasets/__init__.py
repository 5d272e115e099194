"""Data sets: one that comes with natgrad, and others that are known by name."""

from typing import Any

import numpy as np

from natgrad.datasets.fetch import fetch as fetch
from natgrad.datasets.files import (
    absent as absent,
    check,
    describe as describe,
    digest,
    folder as folder,
    motorcycle_path as motorcycle_path,
    names as names,
    path as path,
    place as place,
    read,
)
from natgrad.datasets.registry import KNOWN as KNOWN, Dataset as Dataset
from natgrad.datasets.splits import (
    Split as Split,
    split as split,
    with_scaled_inputs as with_scaled_inputs,
    with_scaled_targets as with_scaled_targets,
)
from natgrad.errors import InputError


def load_motorcycle(as_frame: bool = False) -> tuple[Any, Any]:
    """Head acceleration (g) against time (ms) in 133 rows of a crash test.

    Inputs of shape [133, 1] and targets of shape [133]; or, if a frame is asked for,
    a DataFrame and a Series of pandas. The noise is small at first, and then large.
    """
    text = motorcycle_path().read_text("utf-8")
    names, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    values = np.array([row.split(",") for row in rows], dtype=float)
    x, y = values[:, :1], values[:, 1]
    if not as_frame:
        return x, y
    inputs, target = names.split(",")
    return _framed([inputs], x, target, y)


def load(name: str, as_frame: bool = True) -> tuple[Any, Any]:
    """The inputs and the targets of a data set in `folder()`; `fetch` puts it there.

    They are a DataFrame and a Series of pandas, or arrays if no frame is asked for.
    The file should have the target last, and is checked: if it is not the one that
    natgrad was tried on, its shape and the range of its targets should be the same.
    """
    if name == "motorcycle":
        return load_motorcycle(as_frame)
    known, file = describe(name), path(name)
    if not file.is_file():
        raise InputError(absent(known, file))
    inputs, x, y = read(file)
    if digest(file) != known.sha256:
        check(known, str(file), x, y)
    return _framed(inputs, x, "target", y) if as_frame else (x, y)


def _framed(inputs: list[str], x: np.ndarray, target: str, y: np.ndarray) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "frames need pandas: pip install pandas, or say as_frame=False"
        ) from error
    return pandas.DataFrame(x, columns=pandas.Index(inputs)), pandas.Series(
        y, name=target
    )
