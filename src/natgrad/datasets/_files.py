"""Files of data sets: where they are, how they are read, verified and downloaded."""

import hashlib
import http.client
import io
import os
import socket
import sys
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from natgrad._runtime.cache_folder import cache_folder
from natgrad._text import choices, naming
from natgrad.data import _tables as tables
from natgrad.datasets._registry import KNOWN, Dataset
from natgrad.errors import InputError


TIMEOUT = 30.0
"""After this many seconds of silence, a connection has failed."""

CONNECTION = (OSError, http.client.HTTPException)
CONTENTS = (ValueError, LookupError, zipfile.BadZipFile, zlib.error)


def names() -> list[str]:
    """The names that `load` accepts.

    >>> "motorcycle" in natgrad.datasets.names()
    True
    """
    return sorted(KNOWN)


def load(name: str, as_frame: bool = False) -> tuple[Any, Any]:
    """Loads the inputs and targets of a data set; `fetch` downloads it.

    You get arrays, or a pandas DataFrame and Series with `as_frame`. The target is the
    last column of the file, which is in the folder that NATGRAD_DATA names, by default
    a cache folder. `load` refuses a file whose numbers do not match the checksum.

    "motorcycle" comes with natgrad: 133 measurements of a crash-test dummy's head
    acceleration (g) in the milliseconds after impact. Its noise is small at first, and
    then large.

    Raises:
        InputError: If the name is unknown, the file is missing or its checksum differs.

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> X.shape, y.shape
    ((133, 1), (133,))
    """
    known, file = describe(name), path(name)
    if not file.is_file():
        raise InputError(absent(known))
    columns, x, y = verified(known, file, str(file))
    if not as_frame:
        return x, y
    import pandas

    *inputs, target = columns
    frame = pandas.DataFrame(x, columns=pandas.Index(inputs))
    return frame, pandas.Series(y, name=target)


def fetch(name: str) -> Path:
    """Downloads a data set to where `load` reads it, and returns its path.

    A file that exists stays as it is. Otherwise natgrad makes the table from a download
    of an archive or of OpenML. The file appears only if its numbers match the checksum.

    Raises:
        InputError: If the download or the check fails.

    >>> path = natgrad.datasets.fetch("yacht")  # doctest: +SKIP
    >>> X, y = natgrad.datasets.load("yacht")  # doctest: +SKIP
    """
    known, file = describe(name), path(name)
    if file.is_file():
        return file
    if known.source is None:
        raise InputError(absent(known))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=file.parent) as beside:
        draft = Path(beside) / file.name
        try:
            if known.url is not None:
                _from_url(known, known.url, draft)
            else:
                _from_openml(known, draft)
            verified(known, draft, known.source)
        except InputError as error:
            raise InputError(f"{error}; {_by_hand(known)}") from error
        except CONNECTION as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is the connection, too
            why = f"could not be fetched: {getattr(error, 'reason', error)}"
            raise InputError(f"{known.source} {why}; {_by_hand(known)}") from error
        except CONTENTS as error:
            why = f"has unexpected contents: {error}"
            raise InputError(f"{known.source} {why}; {_by_hand(known)}") from error
        draft.replace(file)
    return file


# Where data sets are


def describe(name: str) -> Dataset:
    """The description of a data set; an error suggests the nearest name."""
    if name not in KNOWN:
        raise InputError(f"no data set {name!r}; known: {choices(name, names())}")
    return KNOWN[name]


def folder() -> Path:
    """The folder of data sets: NATGRAD_DATA, or by default a cache folder."""
    given = os.environ.get("NATGRAD_DATA")
    return Path(given) if given else cache_folder(sys.platform, Path.home())


def path(name: str) -> Path:
    """The path of a data set's file, whether or not it exists."""
    known = describe(name)
    is_included = name == "motorcycle"
    return (Path(__file__).parent if is_included else folder()) / known.file_name


def absent(known: Dataset) -> str:
    """The message for a data set that is missing."""
    command = f"run natgrad datasets {known.name} --fetch, or " if known.source else ""
    return (
        f"the data set {known.name!r} is not in {folder()}; {command}{_by_hand(known)}"
    )


def _by_hand(known: Dataset) -> str:
    """How to get a data set without natgrad."""
    form = "" if known.file else " (Parquet with the target as its last column)"
    return (
        f"get it from {known.source or known.note.split(';')[0]}, and save it as "
        f"{path(known.name)}{form}, or set NATGRAD_DATA to the folder that has it"
    )


# Reading and checking


def verified(
    known: Dataset, file: Path, source: str
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """What `read` returns, if it has the shape and the checksum of a data set."""
    columns, x, y = read(file)
    if x.shape != (known.rows, known.inputs):
        raise InputError(
            f"{source} has {len(x):,} rows of {x.shape[1]} inputs; {known.name} has "
            f"{known.rows:,} of {known.inputs}, and its target is the last column"
        )
    found = content(x, y, known.is_ordered)
    if found != known.sha256:
        raise InputError(
            f"{source}: checksum mismatch: its numbers have the SHA-256 {found}, and "
            f"those of {known.name} have {known.sha256}; use another copy, or read the "
            "file by its path"
        )
    return columns, x, y


def read(file: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the columns, the target last, the inputs, and the targets."""
    if file.suffix == ".npz":
        return _read_npz(file)
    table = tables.read(file)
    with naming(file):
        columns = {name: table[name].numbers() for name in table.column_names}
        for name, values in columns.items():
            if np.isnan(values).any():
                raise InputError(f"column {name!r} has unexpected nulls")
    names = list(columns)
    return names, np.column_stack([*columns.values()][:-1]), table[names[-1]].values


def _read_npz(file: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The digits, training rows first, in the bytes they are stored in."""
    names = [f"{kind}_{part}" for kind in "xy" for part in ("train", "test")]
    try:
        with np.load(file, allow_pickle=False) as stored:
            parts = [stored[name] for name in names]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    images, labels = np.concatenate(parts[:2]), np.concatenate(parts[2:])
    x = images.reshape(len(images), -1)
    return [*(f"pixel_{place}" for place in range(x.shape[1])), "target"], x, labels


def content(x: np.ndarray, y: np.ndarray, is_ordered: bool = False) -> str:
    """The SHA-256 of the numbers in a table, whatever file they are in.

    It is the same for any order of the rows and any type of numbers, unless the rows
    are `is_ordered`.
    """
    if is_ordered:
        return hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
    order, found = np.lexsort([*x.T, y]), hashlib.sha256()
    for rows in np.array_split(order, len(y) // 4096 + 1):
        block = np.column_stack([x[rows], y[rows]]).astype("<f8")
        # Adding zero makes negative zeros positive.
        found.update((block + 0.0).tobytes())
    return found.hexdigest()


# Downloads


def _from_url(known: Dataset, url: str, file: Path) -> None:
    """The table in a file of text, or the file itself if no columns are named."""
    request = urllib.request.Request(url, headers={"User-Agent": "natgrad"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        data = answer.read()
    if not known.columns:
        file.write_bytes(data)
        return
    if known.member:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(known.member)
    lines = data.decode().splitlines()
    names = [f"x{place}" for place in range(max(known.columns) + 1)]
    if known.has_header:
        names = lines.pop(0).split(known.separator)
    table = np.loadtxt(lines, delimiter=known.separator, usecols=known.columns, ndmin=2)
    inputs = [names[place] for place in known.columns[:-1]]
    _write(known, file, inputs, table[:, :-1], table[:, -1])


def _from_openml(known: Dataset, file: Path) -> None:
    """The table that OpenML has, through scikit-learn."""
    from sklearn.datasets import fetch_openml

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # scikit-learn sets none
    try:
        with warnings.catch_warnings():
            # It warns of retries, and of what is checked here.
            warnings.simplefilter("ignore")
            # This parser needs no pandas, and rounds correctly.
            found: Any = fetch_openml(
                data_id=known.openml,
                data_home=str(file.parent),
                as_frame=False,
                parser="liac-arff",
            )
    except CONNECTION:
        raise
    except Exception as error:  # the parser has errors of its own
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        socket.setdefaulttimeout(timeout)
    inputs, x, y = list(found.feature_names), found.data, found.target
    if np.isnan(x).any():
        raise ValueError("unexpected nulls")
    for place, column in enumerate(inputs):
        if column in found.categories:
            values = np.array(found.categories[column], dtype=float)
            x[:, place] = values[x[:, place].astype(int)]
    if y is None:  # no column is marked as the target
        inputs, x, y = inputs[:-1], x[:, :-1], x[:, -1]
    _write(known, file, inputs, x, y if y.ndim == 1 else y[:, 0])


def _write(
    known: Dataset, file: Path, inputs: list[str], x: np.ndarray, y: np.ndarray
) -> None:
    """Writes a table, the target last; two labels become 0 and 1."""
    if known.likelihood == "bernoulli":
        y = np.unique(y, return_inverse=True)[1].astype(np.int64)
    else:
        y = y.astype(float)
    columns = {name: np.ascontiguousarray(x[:, i]) for i, name in enumerate(inputs)}
    tables.write(file, columns | {"target": y})
