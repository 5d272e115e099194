"""Data sets: one that comes with natgrad, and others that are known by name."""

import difflib
import hashlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data import tables
from natgrad.datasets.registry import KNOWN, Dataset as Dataset
from natgrad.errors import InputError, InputWarning


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


def motorcycle_path() -> Path:
    """Where the file is that comes with natgrad."""
    return Path(__file__).parent / "motorcycle.csv"


def names() -> list[str]:
    """What `load` may be asked for."""
    return sorted(["motorcycle", *KNOWN])


def describe(name: str) -> Dataset:
    """What is known of a data set, all but `motorcycle`."""
    if name not in KNOWN:
        close = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"there is no data set {name!r}, but {', '.join(names())}{hint}"
        )
    return KNOWN[name]


def folder() -> Path:
    """Where data sets are looked for: NATGRAD_DATA, or else a folder for caches."""
    return place(sys.platform, Path.home())


def place(platform: str, home: Path) -> Path:
    """Where data sets are looked for on a platform, by its conventions."""
    if given := os.environ.get("NATGRAD_DATA"):
        return Path(given)
    if platform == "darwin":
        return home / "Library" / "Caches" / "natgrad"
    if platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "natgrad"
    # The standard has paths that are not absolute ignored.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else home / ".cache") / "natgrad"


def path(name: str) -> Path:
    """Where the file of a data set is, or should be."""
    return folder() / describe(name).file_name


def load(name: str, as_frame: bool = True) -> tuple[Any, Any]:
    """The inputs and the targets of a data set in `folder()`.

    They are a DataFrame and a Series of pandas, or arrays if no frame is asked for.
    The file should have the target last, and is checked: if it is not the one that
    natgrad was tried on, its shape and the range of its targets should be the same.
    """
    if name == "motorcycle":
        return load_motorcycle(as_frame)
    known, file = describe(name), path(name)
    if not file.is_file():
        raise InputError(absent(known, file))
    read = _read_npz if file.suffix == ".npz" else _read_parquet
    inputs, x, y = read(file)
    _check(known, file, x, y)
    return _framed(inputs, x, "target", y) if as_frame else (x, y)


def absent(known: Dataset, file: Path) -> str:
    """What to do about a data set that is not there."""
    places = known.sources or [known.note]
    form = "Parquet with the target as its last column"
    if file.suffix == ".npz":
        form = known.note
    return (
        f"the data set {known.name!r} is not in {file.parent}; get it from "
        f"{' or '.join(places)}, and save it as {file} ({form}), or set NATGRAD_DATA "
        "to the folder that has it"
    )


def _read_parquet(file: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    table = tables.read(file)
    *inputs, target = table.column_names
    x = tables.infer(table, inputs).encode(table).x
    return inputs, x, table[target].to_numpy()


def _read_npz(file: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The digits, training rows first, in the bytes they are stored in."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            parts = [stored[f"{kind}_{part}"] for kind in "xy" for part in PARTS]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    images, labels = np.concatenate(parts[:2]), np.concatenate(parts[2:])
    x = images.reshape(len(images), -1)
    return [f"pixel_{place}" for place in range(x.shape[1])], x, labels


PARTS = ("train", "test")


def _check(known: Dataset, file: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Raises unless a table is the one that is known, or has all its marks."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest == known.sha256:
        return
    shape = (known.rows, known.inputs)
    if x.shape != shape:
        raise InputError(
            f"{file} has {len(x):,} rows of {x.shape[1]} inputs; {known.name} has "
            f"{known.rows:,} of {known.inputs}, and its target is the last column"
        )
    low, high = float(np.min(y)), float(np.max(y))
    if not np.allclose([low, high], [known.low, known.high], rtol=1e-3, atol=0):
        raise InputError(
            f"the last column of {file} is from {low:g} to {high:g}; the target of "
            f"{known.name}, {known.target}, is from {known.low:g} to {known.high:g}"
        )
    warnings.warn(
        f"{file} is not the file that natgrad was tried on, though its shape and the "
        f"range of its targets are those of {known.name}",
        InputWarning,
        stacklevel=3,
    )


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
