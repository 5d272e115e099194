"""Downloads of data sets from a mirror, an archive or OpenML."""

import http.client
import io
import os
import socket
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data import _tables as tables
from natgrad.datasets._files import absent, by_hand, check, describe, digest, path, read
from natgrad.datasets._registry import Dataset, Download
from natgrad.errors import InputError


TIMEOUT = 30.0
"""After this many seconds of silence, a connection has failed."""


def fetch(name: str, *, unverified: bool = False) -> Path:
    """Downloads a data set to where `load` reads it, and returns its path.

    A file that exists stays as it is. If NATGRAD_MIRROR is the URL of a folder, natgrad
    copies the file from there, byte for byte. Otherwise it makes the table from a
    download of an archive or of OpenML. The file appears only after it has passed its
    checks. `fetch` refuses a table with another checksum, and a data set whose checksum
    natgrad does not know, unless you pass `unverified=True`.

    Raises:
        InputError: If the download or a check fails.

    >>> path = natgrad.datasets.fetch("yacht")  # doctest: +SKIP
    >>> X, y = natgrad.datasets.load("yacht")  # doctest: +SKIP
    """
    file = path(name)
    if file.is_file():
        return file
    known = describe(name)
    where, get = _source(known)
    if get is None:
        raise InputError(absent(known, file))
    if known.content is None and not unverified:
        raise InputError(
            f"natgrad knows no checksum of {name!r}, so it cannot verify what {where} "
            "sends; to fetch it nevertheless, pass unverified=True (--unverified on "
            f"the command line), or {by_hand(known, file)}"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=file.parent) as beside:
        draft = Path(beside) / file.name
        try:
            get(draft)
            _, x, y = read(draft)
            check(known, where, x, y, unverified)
        except FAILURES as error:
            why = _reason(where, error)
            raise InputError(f"{why}; {by_hand(known, file)}") from error
        draft.replace(file)
    return file


FAILURES = (
    *(OSError, http.client.HTTPException),
    *(ValueError, LookupError, zipfile.BadZipFile, zlib.error),
)
"""Errors of a connection, and of what it sends."""


def _reason(where: str, error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is the connection, too
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, OSError | http.client.HTTPException):
        return f"{where} could not be fetched: {getattr(error, 'reason', error)}"
    return f"{where} has unexpected contents: {error}"


def _source(known: Dataset) -> tuple[str, Callable[[Path], None] | None]:
    """The URL of a data set, and the function that makes a file from it."""
    if mirror := os.environ.get("NATGRAD_MIRROR"):
        address = f"{mirror.rstrip('/')}/{known.file_name}"
        return address, partial(_download, address, known.sha256)
    if known.download is not None:
        address = known.download.address
        return address, partial(_from_download, known, known.download)
    if known.openml is not None:
        address = f"https://www.openml.org/d/{known.openml}"
        return address, partial(_from_openml, known, known.openml)
    return "", None


def _download(address: str, sha256: str | None, file: Path) -> None:
    """Downloads a file, and checks its size and its hash."""
    from tqdm import tqdm

    request = urllib.request.Request(address, headers={"User-Agent": "natgrad"})
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT) as answer,
        file.open("wb") as stream,
    ):
        size = int(answer.headers.get("Content-Length") or 0)
        with tqdm(
            **{"desc": file.name, "total": size or None, "unit": "B"},
            **{"unit_scale": True, "delay": 1, "disable": None, "leave": False},
        ) as bar:
            while part := answer.read(1 << 18):
                bar.update(stream.write(part))
    if (found := file.stat().st_size) < size:
        raise InputError(f"{address} closed after {found:,} of {size:,} bytes")
    if sha256 is not None and (found := digest(file)) != sha256:
        raise InputError(f"{address}: checksum mismatch: SHA-256 {found}, not {sha256}")


def _from_download(known: Dataset, download: Download, file: Path) -> None:
    """The table in a file of text, or the file itself if no columns are named."""
    raw = file.with_suffix(".raw")
    _download(download.address, download.sha256, raw)
    if not download.columns:
        raw.replace(file)
        return
    inputs = [f"x{place}" for place in download.columns[:-1]]
    with _text(raw, download.member) as lines:
        if download.header:
            header = lines.readline().strip().split(download.separator)
            inputs = [header[place] for place in download.columns[:-1]]
        table = np.loadtxt(
            lines, delimiter=download.separator, usecols=download.columns, ndmin=2
        )
    _write(known, file, inputs, table[:, :-1], table[:, -1])


@contextmanager
def _text(file: Path, member: str) -> Iterator[io.TextIOWrapper]:
    """The lines of a file, or of one in an archive of many."""
    if not member:
        with file.open(encoding="utf-8") as lines:
            yield lines
        return
    with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8")


def _from_openml(known: Dataset, number: int, file: Path) -> None:
    """The table that OpenML has under a number, through scikit-learn."""
    from sklearn.datasets import fetch_openml

    with _patience(TIMEOUT), warnings.catch_warnings():
        # It warns of retries, and of what is checked here.
        warnings.simplefilter("ignore")
        try:
            # This parser needs no pandas, and rounds correctly.
            found: Any = fetch_openml(
                data_id=number,
                data_home=str(file.parent),
                as_frame=False,
                parser="liac-arff",
            )
        except (OSError, http.client.HTTPException):
            raise
        except Exception as error:  # the parser has errors of its own
            raise ValueError(f"{type(error).__name__}: {error}") from error
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


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """A timeout for connections that set none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


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
