"""A table of Parquet files in random order, written anew in two passes over it."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad.data._columns import CATEGORIES
from natgrad.data._dataset import ParquetDataset
from natgrad.data._table import kind_of
from natgrad.errors import CheckpointError, InputError


BUCKET = 2**27
"""How many bytes a bucket has, which is shuffled in memory and becomes a file."""

BUFFER = 2**26
"""How many bytes are dealt to the buckets at a time."""

MOST_BUCKETS = 500
"""How many buckets are written at a time: for longer tables they are larger."""


class Shuffled(NamedTuple):
    """What was written."""

    rows: int
    files: int
    groups: int


def shuffle(
    data: str | os.PathLike[str] | Sequence[Any] | ParquetDataset,
    out: str | os.PathLike[str],
    rows_per_group: int = 50_000,
    seed: int = 0,
    overwrite: bool = False,
) -> Shuffled:
    """Writes all rows of a table in random order to files in the folder `out`.

    natgrad deals rows to buckets at random and shuffles each bucket. Meanwhile there is
    a hidden folder next to `out`, and no `out`. It needs about as much disk space as
    the table and the result together. The order depends on `seed` alone.

    Raises:
        InputError: If `rows_per_group` is below 1, or `out` exists and `overwrite` is
            not set.

    >>> import pandas
    >>> pandas.DataFrame({"a": [1, 2, 3], "b": [2, 4, 6]}).to_parquet("t.parquet")
    >>> natgrad.data.shuffle("t.parquet", "shuffled").rows
    3
    """
    if rows_per_group < 1:
        raise InputError(f"rows_per_group is {rows_per_group}; it should be at least 1")
    dataset = data if isinstance(data, ParquetDataset) else ParquetDataset(data)
    out = Path(os.path.abspath(out))
    _check_free(out, dataset, overwrite)
    draft = out.with_name(f".{out.name}.unfinished")
    with _written(out, draft):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        schema = dataset.schema.remove_metadata()
        buckets = _deal(dataset, schema, draft, rows_per_group, seed)
        groups = 0
        for at, bucket in enumerate(buckets):
            bits = np.random.Philox(key=[seed, at], counter=[0, 0, 0, 1])
            path = draft / f"part-{at:05d}.parquet"
            groups += _write(bucket, path, rows_per_group, np.random.Generator(bits))
            bucket.unlink()
        if out.exists():
            shutil.rmtree(out)
        draft.rename(out)
    return Shuffled(dataset.total, len(buckets), groups)


def _deal(
    dataset: ParquetDataset, schema: Any, draft: Path, rows_per_group: int, seed: int
) -> list[Path]:
    """Deals all rows to buckets, which are files of Arrow; those that got some."""
    import pyarrow as arrow

    number = _number_of_buckets(dataset, rows_per_group)
    paths = [draft / f"{at}.arrow" for at in range(number)]
    dealt = np.zeros(number, np.int64)
    with contextlib.ExitStack() as stack:
        opened = lambda path: stack.enter_context(arrow.ipc.new_stream(path, schema))
        writers = [opened(str(path)) for path in paths]
        for at, table in enumerate(_buffers(dataset, schema)):
            generator = np.random.Generator(np.random.Philox(key=[seed, at]))
            bucket = generator.integers(0, number, len(table), dtype=np.int16)
            order = np.argsort(bucket, kind="stable")
            counts = np.bincount(bucket, minlength=number)
            table = table.take(arrow.array(order))
            begins = np.cumsum(counts) - counts
            for to in np.flatnonzero(counts):
                writers[to].write_table(table.slice(begins[to], counts[to]))
            dealt += counts
    return [path for path, rows in zip(paths, dealt, strict=True) if rows]


def _buffers(dataset: ParquetDataset, schema: Any) -> Iterator[Any]:
    """The table in pieces of several row groups, in its order."""
    import pyarrow as arrow

    pending, size = [], 0
    for place in range(len(dataset)):
        table = dataset.read(place, schema.names)
        try:
            table = table.cast(schema)
        except (arrow.ArrowException, ValueError) as error:
            raise InputError(
                f"{dataset.where(place)} has other types of columns than the first "
                f"file: {str(error).splitlines()[0]:.200}"
            ) from error
        pending.append(table)
        size += table.nbytes
        if size > BUFFER:
            yield arrow.concat_tables(pending).combine_chunks()
            pending, size = [], 0
    if pending:
        yield arrow.concat_tables(pending).combine_chunks()


def _number_of_buckets(dataset: ParquetDataset, rows_per_group: int) -> int:
    """As many as it takes for none to be larger than it may, and at least one group."""
    # What is short in a file, as strings that repeat, may be long in memory.
    first = int(np.argmax(dataset.rows > 0))
    table = dataset.read(first, dataset.names)
    each = max(dataset.bytes_per_row(), table.nbytes / len(table))
    bucket = max(BUCKET, each * rows_per_group)
    return int(np.clip(np.ceil(each * dataset.total / bucket), 1, MOST_BUCKETS))


def _write(
    bucket: Path, path: Path, rows_per_group: int, generator: np.random.Generator
) -> int:
    """Writes a bucket in random order, in row groups of equal size, at most this."""
    import pyarrow as arrow
    from pyarrow import parquet

    with arrow.memory_map(str(bucket)) as source:
        table = arrow.ipc.open_stream(source).read_all().combine_chunks()
        table = table.take(arrow.array(generator.permutation(len(table))))
    groups = -(-len(table) // rows_per_group)
    texts = [each.name for each in table.schema if kind_of(each.type) in CATEGORIES]
    options: dict[str, Any] = {
        "row_group_size": -(-len(table) // groups),
        "compression": "snappy",
        "use_dictionary": texts,
        "write_page_checksum": True,
    }
    parquet.write_table(table, path, **options)
    return groups


def _check_free(out: Path, dataset: ParquetDataset, overwrite: bool) -> None:
    """Raises if there is something that would be lost."""
    inputs = [Path(os.path.abspath(path)) for path in dataset.paths]
    if any(out == path or out in path.parents for path in inputs):
        raise InputError(f"{out} holds the table itself; write to another folder")
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError(f"{out} is a file; it should be a folder")
    parts = "part-?????.parquet"
    others = [path.name for path in out.iterdir() if not path.match(parts)]
    if others:
        raise InputError(
            f"{out} has {others[0]!r}, which shuffle did not make; write to another "
            "folder"
        )
    if any(out.iterdir()) and not overwrite:
        raise InputError(
            f"{out} has a table already; overwrite=True replaces it, or --force"
        )


@contextlib.contextmanager
def _written(out: Path, draft: Path) -> Iterator[None]:
    """Removes what an error leaves half written, and names its cause."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError):
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CheckpointError(f"{out} could not be written: {why}") from error
        raise
