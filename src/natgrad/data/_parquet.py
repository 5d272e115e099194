"""Batches of Parquet files that need not fit in memory."""

import copy
import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from natgrad._text import listed
from natgrad.data._batches import Batch, Columns, check_share
from natgrad.data._columns import CATEGORIES
from natgrad.data._dataset import ParquetDataset
from natgrad.data._encoding import Number
from natgrad.data._order import Plan, Pool
from natgrad.data._reader import Reader, Rows
from natgrad.data._schema import Schema
from natgrad.data._table import as_table, kind_of
from natgrad.errors import InputError, InputWarning, warn


MOST_BYTES = 2**31
"""How much memory all pools may take without a warning."""

MOST_ROWS = 2**20
"""How many rows a row group may have without a warning."""

LOOKED_AT = 32
"""How many row groups are read to see whether the table is sorted."""

NOISIER = 2.0
"""How much noisier than independent rows a batch may be without a warning."""

AHEAD = 1 / 4
"""Which part of a pool may be left when the next is read."""


class TargetColumns:
    """The last columns of a schema, which come with the target and are no inputs.

    `inputs` is the schema of all others.
    """

    def __init__(self, schema: Schema, columns: Mapping[str, str] | None):
        self.columns = dict(columns or {})
        number = len(schema.columns) - len(self.columns)
        last = schema.columns[number:]
        wrong = [each.name for each in last if not isinstance(each, Number)]
        if [each.name for each in last] != [*self.columns.values()] or wrong:
            raise InputError(
                f"{listed(map(repr, wrong or self.columns.values()))} should be "
                "columns of numbers, the last of the schema, as they come with the "
                "target"
            )
        self.inputs = dataclasses.replace(schema, columns=schema.columns[:number])
        self.width = len(self.inputs.features)
        self._has_gaps = [each.has_gaps for each in last]

    def split(self, x: np.ndarray) -> tuple[np.ndarray, Columns]:
        """The inputs in a matrix, and the other columns, NaN where they are null."""
        if not self.columns:
            return x, {}
        found: Columns = {}
        place = self.width
        for name, has_gaps in zip(self.columns, self._has_gaps, strict=True):
            found[name] = x[..., place]
            if has_gaps:  # then the next says where
                found[name] = np.where(x[..., place + 1] > 0, np.nan, found[name])
            place += 1 + has_gaps
        return np.ascontiguousarray(x[..., : self.width]), found


class LoadedPool(NamedTuple):
    """A pool with its rows in memory, and the order they are given in."""

    pool: Pool
    rows: Rows
    order: np.ndarray

    def cut(self, begin: int, end: int) -> Rows:
        """The rows from `begin` to `end` of the shard, or up to the end of the pool."""
        places = self.order[begin - self.pool.begin : end - self.pool.begin]
        return Rows(*(column.take(places, axis=0) for column in self.rows))


class Parquet:
    """Batches of a table in Parquet; only a few row groups at a time are in memory.

    `data` is a folder, a pattern such as `data/*.parquet`, a file, or several of them.
    Each pass shuffles the order of the row groups, and shuffles the rows of `pool` of
    them together in each of `shards`. All shards give equally many rows to a batch. If
    there are fewer row groups than shards, natgrad uses fewer shards, by a power of
    two. The batch of a step depends on (seed, step) alone.

    `inputs` are the columns to predict from, by default all but the target. String
    inputs need a `schema`, which `scan` makes. Inputs are shifted by `centre` and
    divided by `scale`; `encode` maps the targets, to make numbers of labels or to scale
    them. If the schema drops rows with a null, such a row has weight 0. All others have
    the weight that makes sums over a batch those of the table, on average.
    `num_complete` is the number of rows without a null, if you know it. `columns` are
    those that come with the target, such as {"exposure": "years"}; they are the last of
    a schema. `encode` then takes the targets and a dictionary of these columns, and
    returns both.

    Raises:
        InputError: If the files have no such columns, or `batch_size` is not a
            multiple of `shards`.

    >>> import pandas
    >>> table = pandas.DataFrame({"time": x[:, 0], "height": y})
    >>> table.to_parquet("table.parquet")
    >>> batches = natgrad.data.Parquet("table.parquet", "height", batch_size=10)
    >>> batches.take(step=0, number=2).x.shape
    (2, 10, 1)
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | Sequence[Any] | ParquetDataset,
        target: str,
        inputs: Sequence[str] | None = None,
        batch_size: int = 1024,
        seed: int = 0,
        *,
        schema: Schema | None = None,
        shards: int = 8,
        pool: int = 4,
        centre: Any = None,
        scale: Any = None,
        encode: Callable[..., Any] | None = None,
        num_complete: int | None = None,
        columns: Mapping[str, str] | None = None,
        dtype: Any = np.float64,
    ):
        is_known = isinstance(data, ParquetDataset)
        self.dataset = data if is_known else ParquetDataset(data)
        counts = {"batch_size": batch_size, "shards": shards, "pool": pool}
        for name, value in counts.items():
            if not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} is {value!r}; it should be at least 1")
        self.schema = schema or _plain(self.dataset, target, inputs, columns or {})
        self.target_columns = TargetColumns(self.schema, columns)
        self.mean_weight = 1.0
        self.reader = Reader(self.dataset, self.schema, target)
        self.target, self.seed, self.pool = target, seed, int(pool)
        self.total, self.num_complete = self.dataset.total, num_complete
        self.shards = _shards(self.dataset, int(shards))
        self.batch_size = min(int(batch_size), self.total // self.shards * self.shards)
        if self.batch_size % self.shards:
            near = max(1, round(self.batch_size / self.shards)) * self.shards
            raise InputError(
                f"batch_size is {batch_size}, which {self.shards} shards cannot give "
                f"equally; use batch_size={near}, or other shards"
            )
        self.centre, self.scale, self.encode = centre, scale, encode
        self.dtype = np.dtype(dtype)
        self.plan = Plan(
            self.dataset.rows, self.shards, self.batch_size, self.pool, seed
        )
        self._mine = range(self.shards)
        self._forget()
        self._warn()

    @property
    def fraction(self) -> float:
        """The share of the data in a batch."""
        return self.batch_size / self.total

    @property
    def num_data(self) -> float:
        """The total weight of all rows."""
        rows = self.total if self.num_complete is None else self.num_complete
        return float(rows * self.mean_weight)

    @property
    def empty(self) -> Batch:
        """A batch without rows, with the columns and types of all batches."""
        y = np.zeros(0, str if self.reader.is_text else self.dtype)
        none = np.zeros((0, self.reader.width), self.dtype)
        x, columns = self.target_columns.split(none)
        columns.pop("weight", None)
        y, columns = self._encoded(y, columns)
        return Batch(x, y, None, columns)

    def _encoded(self, y: np.ndarray, columns: Columns) -> tuple[np.ndarray, Columns]:
        """Targets and the columns that come with them, in the units of `encode`."""
        if self.encode is None:
            return y, columns
        if self.target_columns.columns:
            return self.encode(y, columns)
        return self.encode(y), columns

    def share(self, process: int, processes: int) -> "Parquet":
        """The same batches, with only the rows of one of several processes."""
        check_share(process, processes)
        if self.shards % processes:
            raise InputError(
                f"{self.shards} shards of {len(self.dataset):,} row groups cannot be "
                f"shared equally by {processes} processes; use shards={processes}, and "
                f"where the row groups are too few, cut the table smaller: {REMEDY}"
            )
        shared, each = copy.copy(self), self.shards // processes
        shared._mine = range(process * each, (process + 1) * each)
        shared._forget()
        return shared

    def scaled(
        self,
        centre: Any,
        scale: Any,
        encode: Callable[..., Any] | None = None,
        mean_weight: float = 1.0,
    ) -> "Parquet":
        """The same batches in other units; rows weigh `mean_weight` on average."""
        scaled = copy.copy(self)
        scaled.mean_weight = mean_weight
        scaled.centre, scaled.scale, scaled.encode = centre, scale, encode
        scaled._forget()
        return scaled

    def take(self, step: int, number: int) -> Batch:
        """The batches of `number` steps from `step` on, stacked."""
        cut = self.plan.cut
        begin, end = step * cut, (step + number) * cut
        parts = [self._shard(shard, begin, end) for shard in self._mine]

        def together(columns: list[np.ndarray], dtype: Any) -> np.ndarray:
            """From [number · cut, ...] of each shard to [number, rows, ...]."""
            each = [part.reshape(number, cut, *part.shape[1:]) for part in columns]
            return np.concatenate(each, axis=1, dtype=dtype, casting="same_kind")

        both = together([part.x for part in parts], self.dtype)
        x, columns = self.target_columns.split(both)
        if self.centre is not None:
            x -= self.centre
        if self.scale is not None:
            x /= self.scale
        kind = None if self.reader.is_text else self.dtype
        y = together([part.y for part in parts], kind)
        weight = np.full(y.shape[:2], self.total / self.batch_size, self.dtype)
        if "weight" in columns:
            weight *= columns.pop("weight")
        weight *= together([part.is_complete for part in parts], self.dtype)
        y, columns = self._encoded(y, columns)
        return Batch(x, y, weight, columns)

    def fingerprint(self) -> str:
        """The SHA-256 of the files' names and counts, the columns and the order."""
        digest = hashlib.sha256(self.dataset.fingerprint().encode())
        order = (self.schema.to_dict(), self.target, self.shards, self.pool)
        columns = self.target_columns.columns
        order += (columns,) if columns else ()
        digest.update(repr(order).encode())
        return digest.hexdigest()

    def _shard(self, shard: int, begin: int, end: int) -> Rows:
        """Rows of a shard, counted over all passes."""
        pieces = []
        while begin < end:
            filled = self._pool(shard, begin)
            pool = filled.pool
            stop = min(end, pool.end)
            if pool.end - stop <= AHEAD * (pool.end - pool.begin):
                self._read_ahead(shard, pool.end)
            pieces.append(filled.cut(begin, stop))
            begin = stop
        if len(pieces) == 1:
            return pieces[0]
        return Rows(*map(np.concatenate, zip(*pieces, strict=True)))

    def _pool(self, shard: int, place: int) -> LoadedPool:
        """The pool that has a row, which is in memory, on its way, or read now."""
        held = self._held.get(shard)
        if held is not None and held.pool.begin <= place < held.pool.end:
            return held
        del held  # so that there is room for the next
        self._held.pop(shard, None)
        ahead = self._ahead.pop(shard, None)
        if ahead is not None and ahead[0] != place:
            ahead[1].cancel()
            ahead = None
        if ahead is None:
            self._held[shard] = self._read(self.plan.at(shard, place))
        else:
            self._held[shard] = ahead[1].result()
        return self._held[shard]

    def _read_ahead(self, shard: int, place: int) -> None:
        if shard not in self._ahead:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "natgrad-read")
            pool = self.plan.at(shard, place)
            self._ahead[shard] = place, self._thread.submit(self._read, pool)

    def _read(self, pool: Pool) -> LoadedPool:
        rows = self.reader.read(pool.pieces)
        return LoadedPool(pool, rows, self.plan.shuffled(pool).astype(np.int32))

    def _forget(self) -> None:
        self._held: dict[int, LoadedPool] = {}
        self._ahead: dict[int, tuple[int, Future[LoadedPool]]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def _warn(self) -> None:
        """Warns if batches are noisy, as of sorted rows, or row groups are large."""
        held = min(2 * self.shards * self.pool, len(self.dataset))
        width = self.reader.width * np.dtype(self.reader.dtype).itemsize + 12
        size = float(np.sort(self.dataset.rows)[-held:].sum()) * width
        largest = int(self.dataset.rows.max())
        if size > MOST_BYTES or largest > MOST_ROWS:
            warn(
                f"the row groups have up to {largest:,} rows, and those in memory at a "
                f"time take {size / 2**30:.1f} GB; cut the table smaller: {REMEDY}",
                InputWarning,
            )
        groups = self.shards * self.pool
        ratio = noise(self.dataset, self.target, self.batch_size, groups)
        if ratio > NOISIER:
            warn(
                f"the table seems sorted: the mean target of a batch is {ratio:.1f} "
                f"times noisier than that of rows at random; shuffle it once: {REMEDY}",
                InputWarning,
            )


REMEDY = "natgrad shuffle IN OUT"


def noise(dataset: ParquetDataset, target: str, rows: int, groups: int) -> float:
    """How much noisier the mean target of a batch is than with independent rows.

    It is √(1 + B/K · between/total), where a batch has B rows of K row groups: 1 is
    best. The variances within and between groups are estimated from a few of them.
    """
    filled = np.flatnonzero(dataset.rows)
    groups = max(groups, int(rows / dataset.rows[filled].mean()))
    if groups >= len(filled):
        return 1.0
    places = np.linspace(0, len(filled) - 1, min(LOOKED_AT, len(filled)))
    each = []
    for place in filled[np.unique(places.round().astype(int))]:
        table = as_table(dataset.read(int(place), [target]))
        y, is_there = table[target].target(str)
        if is_there.any():
            each.append(y[is_there])
    if len(each) < 2:
        return 1.0
    if each[0].dtype.kind == "U":
        kinds = np.unique(np.concatenate(each))
        each = [(y[:, None] == kinds).astype(float) for y in each]
    means = np.array([y.mean(0, dtype=float) for y in each])
    variances = np.array([y.var(0, dtype=float) for y in each])
    sizes = np.array([len(y) for y in each])
    within = np.average(variances, axis=0, weights=sizes).sum()
    between = max(0.0, means.var(0, ddof=1).sum() - within * (1 / sizes).mean())
    if not within + between > 0:
        return 1.0
    # Groups that are all there at once have nothing between them and the rest.
    apart = between / (within + between) * (1 - groups / len(filled))
    return float(np.sqrt(1 + rows / groups * apart))


def _plain(
    dataset: ParquetDataset,
    target: str,
    inputs: Sequence[str] | None,
    columns: Mapping[str, str],
) -> Schema:
    """The schema of columns of numbers, for which nothing must be known."""
    others = {target, *columns.values()}
    names = inputs or [name for name in dataset.names if name not in others]
    names = [*names, *columns.values()]
    for name in names:
        if name not in dataset.names:
            continue
        if kind_of(dataset.schema.field(name).type) in (*CATEGORIES, "date"):
            raise InputError(
                f"column {name!r} is of strings or dates, which must be known: give "
                "schema=natgrad.data.scan(data, target).schema, or other inputs"
            )
    if not names:
        raise InputError(f"the table has no column besides {target!r} to predict from")
    return Schema(tuple(Number(name) for name in names))


def _shards(dataset: ParquetDataset, shards: int) -> int:
    """As many shards as there are row groups for, halved until there are."""
    groups = int(np.count_nonzero(dataset.rows))
    return shards if shards <= groups else 2 ** (groups.bit_length() - 1)
