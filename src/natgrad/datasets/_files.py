"""Files of data sets: their folder, how they are read and verified."""

import difflib
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from natgrad._runtime.cache_folder import cache_folder
from natgrad._warnings import warn
from natgrad.data import _tables as tables
from natgrad.data._columns import numbers
from natgrad.datasets._registry import KNOWN, Dataset
from natgrad.datasets._splits import OFFICIAL
from natgrad.errors import InputError, InputWarning


PARTS = ("train", "test")


def names() -> list[str]:
    """The names that `load` accepts.

    >>> "motorcycle" in natgrad.datasets.names()
    True
    """
    return sorted(["motorcycle", *KNOWN])


def describe(name: str) -> Dataset:
    """The description of a data set; `motorcycle` has none.

    Raises:
        InputError: If the name is unknown; the message suggests the nearest.

    >>> natgrad.datasets.describe("yacht").rows
    308
    """
    if name not in KNOWN:
        close = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(
            f"no data set {name!r}; choose one of {', '.join(names())}{hint}"
        )
    return KNOWN[name]


def folder() -> Path:
    """The folder of data sets: NATGRAD_DATA, or by default a cache folder.

    >>> natgrad.datasets.folder() == natgrad.datasets.path("yacht").parent
    True
    """
    return place(sys.platform, Path.home())


def place(platform: str, home: Path) -> Path:
    """The folder of data sets on a platform, by its conventions."""
    if given := os.environ.get("NATGRAD_DATA"):
        return Path(given)
    return cache_folder(platform, home)


def motorcycle_path() -> Path:
    """The path of the file that comes with natgrad."""
    return Path(__file__).parent / "motorcycle.csv"


def path(name: str) -> Path:
    """The path of a data set's file, whether or not it exists.

    Raises:
        InputError: If the name is unknown.

    >>> natgrad.datasets.path("motorcycle").name
    'motorcycle.csv'
    """
    if name == "motorcycle":
        return motorcycle_path()
    return folder() / describe(name).file_name


def absent(known: Dataset, file: Path) -> str:
    """The message for a data set that is missing."""
    can_fetch = known.is_fetchable or os.environ.get("NATGRAD_MIRROR")
    command = f"run natgrad datasets {known.name} --fetch, or " if can_fetch else ""
    return (
        f"the data set {known.name!r} is not in {file.parent}; {command}"
        f"{by_hand(known, file)}"
    )


def by_hand(known: Dataset, file: Path) -> str:
    """How to get a data set without natgrad."""
    places = known.sources or [known.note.removeprefix("from ").split(";")[0]]
    form = "Parquet with the target as its last column"
    if file.suffix == ".npz":
        form = known.note
    return (
        f"get it from {' or '.join(places)}, and save it as {file} ({form}), or set "
        "NATGRAD_DATA to the folder that has it"
    )


def read(file: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the inputs, the inputs, and the targets."""
    if file.suffix == ".npz":
        return _read_npz(file)
    table = tables.read(file)
    *inputs, target = table.column_names
    # One column after the other: a large table is in memory twice, not three times.
    x = np.empty((len(table), len(inputs)))
    try:
        for column, name in enumerate(inputs):
            x[:, column] = _whole(table, name)
        y = _whole(table, target)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return inputs, x, y.astype(table[target].type.to_pandas_dtype(), copy=False)


def _whole(table: Any, name: str) -> np.ndarray:
    values = numbers(table[name], name)
    if np.isnan(values).any():
        raise InputError(f"column {name!r} has unexpected nulls")
    return values


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


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content(x: np.ndarray, y: np.ndarray, is_ordered: bool = False) -> str:
    """The SHA-256 of the numbers in a table, whatever file they are in.

    It is the same for any order of the rows, unless they are `is_ordered`.
    """
    order = np.arange(len(y)) if is_ordered else np.lexsort([*x.T, y])
    found = hashlib.sha256()
    for rows in np.array_split(order, len(y) // 4096 + 1):
        block = np.column_stack([x[rows], y[rows]]).astype("<f8")
        # Adding zero makes negative zeros positive.
        found.update((block + 0.0).tobytes())
    return found.hexdigest()


def check(
    known: Dataset, where: str, x: np.ndarray, y: np.ndarray, unverified: bool = False
) -> None:
    """Raises unless a table is the known one.

    Its shape, the range of its targets and the checksum of its numbers should match. If
    there is no checksum, or the user accepts `unverified` numbers, it warns instead.
    """
    if x.shape != (known.rows, known.inputs):
        raise InputError(
            f"{where} has {len(x):,} rows of {x.shape[1]} inputs; {known.name} has "
            f"{known.rows:,} of {known.inputs}, and its target is the last column"
        )
    low, high = float(np.min(y)), float(np.max(y))
    if not np.allclose([low, high], [known.low, known.high], rtol=1e-3, atol=0):
        raise InputError(
            f"the last column of {where} is from {low:g} to {high:g}; the target of "
            f"{known.name}, {known.target}, is from {known.low:g} to {known.high:g}"
        )
    found = content(x, y, known.name in OFFICIAL)
    if found == known.content:
        return
    if known.content is not None and not unverified:
        raise InputError(
            f"{where}: checksum mismatch: its numbers have the SHA-256 {found}, and "
            f"those of {known.name} have {known.content}; to use them nevertheless, "
            "pass unverified=True (--unverified on the command line), or pass the file "
            "by its path"
        )
    warn(
        f"{where} is unverified: its shape and the range of its targets are those of "
        f"{known.name}, and its numbers may not be",
        InputWarning,
    )
