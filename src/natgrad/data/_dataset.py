"""Parquet files as one table: an index of their row groups, read one at a time."""

import collections
import hashlib
import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from typing import Any

import numpy as np

from natgrad._text import naming
from natgrad.data._columns import require
from natgrad.errors import InputError


FOOTERS = 2**26
"""How many bytes of footers are cached; others are read again."""

READERS = 8
"""How many files are opened at a time to be indexed."""


class ParquetDataset:
    """The row groups of many Parquet files, in the order of their paths.

    `paths` is a folder, a pattern such as `data/*.parquet`, a file, or several of them,
    on any filesystem that pyarrow or fsspec opens. Of each row group the index keeps
    three numbers: its file, its place there and its rows.
    """

    def __init__(self, paths: str | os.PathLike[str] | Sequence[Any]):
        if util.find_spec("pyarrow") is None:
            raise ImportError(
                'reading Parquet needs pyarrow: pip install "natgrad[parquet]"',
                name="pyarrow",
            )
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self.filesystem, self.paths = _found([os.fspath(path) for path in several])
        self._footers: collections.OrderedDict[str, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        distinct = list(dict.fromkeys(self.paths))
        with ThreadPoolExecutor(READERS) as pool:
            found = dict(zip(distinct, pool.map(self._indexed, distinct), strict=True))
        each = [found[path][0] for path in self.paths]
        self._marks = [found[path][1] for path in self.paths]
        sizes = [len(rows) for rows in each]
        self.files = np.repeat(np.arange(len(each), dtype=np.int32), sizes)
        places = [np.arange(size, dtype=np.int32) for size in sizes]
        self.groups = np.concatenate(places)
        self.rows = np.concatenate(each)
        self.total = int(self.rows.sum())
        if not self.total:
            raise InputError(f"{self.paths[0]} has no rows")
        self.schema = self._footer(self.paths[0]).schema.to_arrow_schema()

    def __len__(self) -> int:
        """How many row groups there are."""
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """The columns of the first file; the others should have them too."""
        return self.schema.names

    def read(self, place: int, columns: Sequence[str]) -> Any:
        """Some columns of a row group, in Arrow; pages with a checksum are verified."""
        path, group = self.paths[self.files[place]], int(self.groups[place])
        footer = self._footer(path)
        require_in(path, footer.schema.to_arrow_schema().names, columns)
        with naming(self.where(place)), self._opened(path, footer) as file:
            table = file.read_row_group(group, list(columns))
        if len(table) != self.rows[place]:
            raise InputError(
                f"{path} has {len(table):,} rows in row group {group}, and had "
                f"{self.rows[place]:,}: it was changed while it was in use"
            )
        return table

    def fingerprint(self) -> str:
        """The SHA-256 of the files' names and of their footers.

        Footers have the rows and the bytes of each column of each group, and as most
        writers make them the least and the greatest of its values.
        """
        names = [path.rpartition("/")[2] for path in self.paths]
        pairs = zip(names, self._marks, strict=True)
        text = "\n".join(f"{name} {mark}" for name, mark in pairs)
        return hashlib.sha256(text.encode()).hexdigest()

    def where(self, place: int) -> str:
        """A row group by its file and number."""
        return f"{self.paths[self.files[place]]}, row group {self.groups[place]}"

    def bytes_per_row(self) -> float:
        """How much a row takes in the files on average, before it is compressed."""
        size = rows = 0
        for path in dict.fromkeys(self.paths):
            footer = self._footer(path)
            groups = range(footer.num_row_groups)
            size += sum(footer.row_group(group).total_byte_size for group in groups)
            rows += footer.num_rows
        return size / rows

    def _opened(self, path: str, footer: Any = None) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(
            path,
            metadata=footer,
            filesystem=self.filesystem,
            page_checksum_verification=True,
            pre_buffer=True,
        )

    def _indexed(self, path: str) -> tuple[np.ndarray, str]:
        """The rows of each row group of a file, and the SHA-256 of its footer."""
        from pyarrow import BufferOutputStream

        footer, copy = self._footer(path), BufferOutputStream()
        groups = range(footer.num_row_groups)
        rows = [footer.row_group(group).num_rows for group in groups]
        footer.write_metadata_file(copy)
        return np.asarray(rows, np.int64), hashlib.sha256(copy.getvalue()).hexdigest()

    def _footer(self, path: str) -> Any:
        """The footer of a file, from among the last that were used or from the file."""
        with self._lock:
            if path in self._footers:
                self._footers.move_to_end(path)
                return self._footers[path]
        with naming(path), self._opened(path) as file:
            footer = file.metadata
        with self._lock:
            self._footers[path] = footer
            size = sum(each.serialized_size for each in self._footers.values())
            while size > FOOTERS and len(self._footers) > 1:
                size -= self._footers.popitem(last=False)[1].serialized_size
        return footer


def is_dataset(data: str) -> bool:
    """Whether a path is one of many files: a folder, a pattern or an address."""
    is_several = "://" in data or _is_pattern(data) or os.path.isdir(data)
    return is_several and not os.path.isfile(data)


def require_in(path: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises unless a file has all columns that are asked for."""
    with naming(path):
        require(names, wanted)


def _found(paths: list[str]) -> tuple[Any, list[str]]:
    """The filesystem, and all files that are meant, in order."""
    filesystem, found = None, []
    for path in paths:
        base = path
        while _is_pattern(base):
            base = base.rpartition("/")[0]
        filesystem, root = _filesystem(base or ".")
        pattern = None
        if base != path:
            # What the filesystem calls the fixed part, and the rest of the pattern.
            pattern = (root.rstrip("/") + path[len(base) :]) if base else path
        some = _listed(filesystem, root, pattern)
        if not some:
            what = "has no Parquet files" if base == path else "matches no file"
            raise InputError(
                f"{path} {what}; it should be a folder of .parquet files, or a "
                "pattern such as data/*.parquet, in quotes"
            )
        found += some
    return filesystem, found


def _filesystem(path: str) -> tuple[Any, str]:
    from pyarrow import ArrowException, fs

    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (ArrowException, OSError) as error:
        try:
            import fsspec
        except ImportError:
            raise InputError(f"{path} cannot be opened: {error}") from error
    try:
        filesystem, root = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError, OSError) as error:
        raise InputError(f"{path} cannot be opened: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), root


def _listed(filesystem: Any, root: str, pattern: str | None) -> list[str]:
    from pyarrow import fs

    info = filesystem.get_file_info(root)
    if pattern is None and info.type == fs.FileType.File:
        return [root]
    if info.type != fs.FileType.Directory:
        return []
    inside = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    paths = [one.path for one in inside if one.type == fs.FileType.File]
    if pattern is None:
        # As others have it, what begins with a dot or an underscore is no data.
        parts = lambda path: path[len(root) :].lstrip("/").split("/")
        is_hidden = lambda path: any(part[:1] in "._" for part in parts(path))
        shown = (path for path in paths if not is_hidden(path))
        return sorted(path for path in shown if path.endswith(".parquet"))
    matches = re.compile(_expression(pattern.removeprefix("./"))).fullmatch
    return sorted(path for path in paths if matches(path.removeprefix("./")))


def _is_pattern(path: str) -> bool:
    return any(character in path for character in "*?[")


def _expression(pattern: str) -> str:
    """A pattern of files as a regular expression; `**/` is any folders."""
    known = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}

    def meant(part: str) -> str:
        if part.startswith("["):
            return part.replace("[!", "[^")
        return known.get(part, re.escape(part))

    return "".join(map(meant, re.split(r"(\*\*/|\*|\?|\[[^]]+\])", pattern)))
