"""One pass over a table: its schema, means, standard deviations and a sample."""

import dataclasses
import io
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from natgrad._config import FILLED, NULLS, PERIODS
from natgrad._text import naming, require_choice
from natgrad.data._columns import CATEGORIES, Column, refuse_nulls, require
from natgrad.data._dataset import ParquetDataset
from natgrad.data._encoding import MAX_VALUES, Category, Date, describe
from natgrad.data._schema import Schema
from natgrad.data._table import as_table, kind_of
from natgrad.errors import InputError


MOST = 2**27
"""How many rows a scan reads; from a longer table, it reads some row groups."""

BLOCKS = 256
"""Into how many blocks the work is cut, whoever does them."""

MOST_TEXTS = 10_000
"""How many different strings of a column a scan counts."""


class Part(NamedTuple):
    """What one process has seen; all arrays are as large as those of any other.

    `moments` has for each block and column how many numbers there are, their mean, and
    the sum of their squared distances from it; `rows` has for each block its rows,
    those without a null, and the nulls of each column. `sample` has rows: a random
    priority, the place in the table, and the columns, strings as places in `values`.
    These are for each column its strings and how often each is there, the different
    numbers of a target that has few, or else None. `firsts` has the first of each
    column of dates, in days since 1970.
    """

    moments: np.ndarray
    rows: np.ndarray
    sample: np.ndarray
    values: list[Any]
    names: list[str]
    nulls: str
    total: int
    firsts: Sequence[float | None]
    periods: Sequence[str]

    def to_bytes(self) -> bytes:
        """The part for other processes and for a file."""
        rest = np.frombuffer(json.dumps(self[3:]).encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, *self[:3], rest)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Part":
        with np.load(io.BytesIO(data)) as file:
            *arrays, rest = file.values()
            return cls(*arrays, *json.loads(rest.tobytes()))


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `scan` found in a table."""

    num_rows: int
    num_complete: int
    nulls: dict[str, int]
    schema: Schema
    mean: np.ndarray
    deviation: np.ndarray
    target_mean: float | None
    target_deviation: float | None
    values: tuple[Any, ...] | None
    sample_x: np.ndarray
    sample_y: np.ndarray


def scan(
    data: str | os.PathLike[str] | Sequence[Any] | ParquetDataset,
    target: str,
    inputs: Sequence[str] | None = None,
    nulls: str = "error",
    rows: int = 65536,
    seed: int = 0,
    date_periods: Sequence[str] = (),
) -> Summary:
    """Reads a table once, for its schema, means, standard deviations and a sample.

    `nulls` says what to do with a null: "error", "drop" its row, fill in the "mean", or
    also add an "indicator". Dates become days since the first; `date_periods`, of
    "day", "week" and "year", add a sine and a cosine each.

    Of the table's `num_rows` rows, `num_complete` have no null; `nulls` counts those of
    each column. These are estimates if natgrad did not read all rows. `mean` and
    `deviation` are those of each input, `target_mean` and `target_deviation` those of
    the target. `values` are the distinct targets: all strings, or the numbers if they
    are few. `sample_x` and `sample_y` are at most `rows` random rows without a null.
    `schema` says what natgrad makes of each column; pass it to `Parquet`.

    Raises:
        InputError: If the files have no such columns, or a null with `nulls="error"`.

    >>> import pandas
    >>> pandas.DataFrame({"a": [1, 2, 3], "b": [2, 4, 6]}).to_parquet("t.parquet")
    >>> found = natgrad.data.scan("t.parquet", target="b")
    >>> found.num_complete, found.mean.tolist(), found.target_mean
    (3, [2.0], 4.0)
    """
    part = scan_part(data, target, inputs, nulls, rows, seed, date_periods=date_periods)
    return merge([part])


def scan_part(
    data: str | os.PathLike[str] | Sequence[Any] | ParquetDataset,
    target: str,
    inputs: Sequence[str] | None = None,
    nulls: str = "error",
    rows: int = 65536,
    seed: int = 0,
    process: int = 0,
    processes: int = 1,
    date_periods: Sequence[str] = (),
) -> Part:
    """What one of several processes reads; the parts of all make the summary.

    The summary is the same, bit for bit, however many they are.
    """
    dataset = data if isinstance(data, ParquetDataset) else ParquetDataset(data)
    require_choice("nulls", nulls, NULLS)
    for period in date_periods:
        require_choice("date_periods", period, PERIODS)
    if inputs is None:
        inputs = [name for name in dataset.names if name != target]
    if not inputs:
        raise InputError("there are no inputs; a model needs at least one column")
    require(dataset.names, names := [*inputs, target])
    scanner = _Scanner(dataset, names, nulls, min(rows, dataset.total), seed)
    blocks = np.array_split(*_chosen(dataset, seed))
    moments = np.zeros((len(blocks), len(scanner.names), 3))
    seen = np.zeros((len(blocks), len(scanner.names) + 2))
    for at in range(process, len(blocks), processes):
        for place in blocks[at]:
            some, rows_of = scanner.read(int(place))
            moments[at] = together(moments[at], some)
            seen[at] += rows_of
    sample = scanner.sample()
    rest = (scanner.values(), scanner.names, nulls, dataset.total)
    return Part(moments, seen, sample, *rest, scanner.firsts, list(date_periods))


def merge(parts: Sequence[Part]) -> Summary:
    """The summary of a table, of what each process has seen of it."""
    first = parts[0]
    *inputs, target = first.names
    moments = np.zeros_like(first.moments[0])
    # A block is one part's; the others have zeros there.
    for block in np.sum([part.moments for part in parts], axis=0):
        moments = together(moments, block)
    scanned, whole, *null_counts = np.sum([part.rows for part in parts], axis=(0, 1))
    if not whole:
        raise InputError("there is no row without a null")
    values = [_union(column) for column in zip(*[p.values for p in parts], strict=True)]
    firsts = [earliest(each) for each in zip(*[p.firsts for p in parts], strict=True)]
    columns = []
    for at, (name, (number, mean, _)) in enumerate(zip(inputs, moments, strict=False)):
        texts = values[at]
        known = {"values": texts} if texts is not None else {"mean": mean}
        if firsts[at] is not None:
            known |= {"first": firsts[at], "periods": first.periods}
        known = known if number or texts else {}
        columns.append(describe(name, first.nulls, int(whole - number), **known))
    schema = Schema(tuple(columns), first.nulls)
    drawn = _drawn(parts, values)
    x, means, deviations = [], [], []
    for at, column in enumerate(schema.columns):
        some = column.expand(drawn[:, at])
        # Of sines and cosines a sample tells enough.
        mean, deviation = np.mean(some, axis=0), np.std(some, axis=0)
        if column.has_gaps:
            share = 1 - moments[at, 0] / whole
            mean[-1], deviation[-1] = share, np.sqrt(share * (1 - share))
        if isinstance(column, Category):
            shares = np.array([values[at][text] for text in column.values]) / whole
            mean[: len(shares)] = shares
            deviation[: len(shares)] = np.sqrt(shares * (1 - shares))
        else:
            start = column.first if isinstance(column, Date) else 0.0
            mean[0] = moments[at, 1] - start
            deviation[0] = np.sqrt(moments[at, 2] / whole)
        x.append(some)
        means.append(mean)
        deviations.append(deviation)
    labels, y = values[-1], drawn[:, -1]
    is_strings = isinstance(labels, dict)
    y = np.array(sorted(labels), dtype=str)[y.astype(int)] if is_strings else y
    return Summary(
        num_rows=first.total,
        num_complete=round(first.total * float(whole / scanned)),
        nulls=dict(zip(first.names, map(int, null_counts), strict=True)),
        schema=schema,
        mean=np.concatenate(means),
        deviation=np.concatenate(deviations),
        target_mean=None if is_strings else float(moments[-1, 1]),
        target_deviation=(
            None if is_strings else float(np.sqrt(moments[-1, 2] / whole))
        ),
        values=None if labels is None else tuple(sorted(labels)),
        sample_x=np.concatenate(x, axis=1),
        sample_y=y,
    )


@dataclasses.dataclass
class _Scanner:
    """Reads row groups, and keeps their strings and a sample."""

    dataset: ParquetDataset
    names: list[str]
    nulls: str
    size: int
    seed: int

    def __post_init__(self) -> None:
        dataset, names = self.dataset, self.names
        self.begins = np.cumsum(dataset.rows) - dataset.rows
        *inputs, target = [kind_of(dataset.schema.field(name).type) for name in names]
        self.is_strings = [kind in CATEGORIES for kind in inputs]
        self.is_strings.append(target in ("text", "truth"))
        self.is_dates = [*(kind == "date" for kind in inputs), False]
        self.firsts: list[float | None] = [None for _ in names]
        self.texts: list[dict[str, int]] = [{} for _ in names]
        self.counts: list[np.ndarray] = [np.zeros(0, int) for _ in names]
        self.targets: np.ndarray | None = np.zeros(0)
        self.drawn = np.full((0, len(names) + 2), np.inf)
        self.highest = np.inf

    def read(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        """The moments of each column, and the rows, whole rows and nulls of each."""
        table = as_table(self.dataset.read(place, list(dict.fromkeys(self.names))))
        matrix = np.empty((len(self.names), len(table))).T  # columns are contiguous
        with naming(self.dataset.where(place)):
            for at, name in enumerate(self.names):
                self._fill(table[name], at, matrix[:, at])
            is_null = np.isnan(matrix)
            for at, name in enumerate(self.names):
                is_target = at == len(self.names) - 1
                if self.nulls == "error" or (is_target and self.nulls in FILLED):
                    refuse_nulls(is_null[:, at], name, is_target)
        refused = is_null[:, -1:] if self.nulls in FILLED else is_null
        is_kept = np.asarray(~refused.any(axis=1))
        kept = matrix if is_kept.all() else matrix[is_kept]
        self._count(kept)
        self._draw(place, is_kept, kept)
        rows = [len(table), len(kept), *is_null.sum(0)]
        return moments_of(kept), np.array(rows, float)

    def values(self) -> list[Any]:
        found: list[Any] = []
        for at, texts in enumerate(self.texts):
            tally = zip(texts, self.counts[at].tolist(), strict=True)
            found.append(dict(tally) if self.is_strings[at] else None)
        if not self.is_strings[-1] and self.targets is not None:
            found[-1] = self.targets.tolist()
        return found

    def sample(self) -> np.ndarray:
        """The rows of lowest priority, and rows of none where there are too few."""
        order = np.lexsort((self.drawn[:, 1], self.drawn[:, 0]))[: self.size]
        short = np.full((self.size - len(order), self.drawn.shape[1]), np.inf)
        return np.concatenate([self.drawn[order], short])

    def _fill(self, column: Column, at: int, out: np.ndarray) -> None:
        if self.is_dates[at]:
            out[:] = column.days()
            return
        if not self.is_strings[at]:
            out[:] = column.numbers()
            return
        codes, texts = column.label_codes()
        ours = self.texts[at]
        places = [ours.setdefault(text, len(ours)) for text in texts]
        if len(ours) > MOST_TEXTS:
            raise InputError(
                f"column {self.names[at]!r} has more than {MOST_TEXTS:,} different "
                "strings; leave it out, or make numbers of it"
            )
        out[:] = np.array([*places, np.nan])[codes]

    def _count(self, kept: np.ndarray) -> None:
        for at in np.flatnonzero(self.is_dates):
            here = None if np.isnan(kept[:, at]).all() else np.nanmin(kept[:, at])
            self.firsts[at] = earliest([self.firsts[at], here])
        for at in np.flatnonzero(self.is_strings):
            codes = kept[:, at]
            codes = codes[~np.isnan(codes)].astype(int)
            counts = np.bincount(codes, minlength=len(self.texts[at]))
            counts[: len(self.counts[at])] += self.counts[at]
            self.counts[at] = counts
        if self.targets is not None and not self.is_strings[-1]:
            targets = np.union1d(self.targets, kept[:, -1])
            self.targets = targets if len(targets) <= MAX_VALUES else None

    def _draw(self, place: int, is_kept: np.ndarray, kept: np.ndarray) -> None:
        bits = np.random.Philox(key=[self.seed, place], counter=[0, 0, 0, 2**32])
        priority = np.random.Generator(bits).random(len(is_kept))[is_kept]
        low = np.flatnonzero(priority <= self.highest)
        places = (np.flatnonzero(is_kept) + self.begins[place]).astype(float)
        rows = np.column_stack([priority[low], places[low], kept[low]])
        self.drawn = np.concatenate([self.drawn, rows])
        if len(self.drawn) > 2 * self.size:
            self.drawn = self.sample()
            self.highest = self.drawn[-1, 0]


# Means, squared distances from them and first days, of rows in parts


def moments_of(rows: np.ndarray) -> np.ndarray:
    """How many numbers each column has, their mean and squared distances from it."""
    is_null = np.isnan(rows)
    number = len(rows) - is_null.sum(0)
    there = np.where(is_null, 0.0, rows) if is_null.any() else rows
    mean = there.sum(0) / np.maximum(number, 1)
    distance = there - mean
    if is_null.any():
        distance[is_null] = 0
    return np.stack([number, mean, (distance**2).sum(0)], axis=-1)


def together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The moments of two sets of rows together."""
    number = one[..., 0] + other[..., 0]
    share = other[..., 0] / np.maximum(number, 1)
    apart = other[..., 1] - one[..., 1]
    mean = np.where(one[..., 0] > 0, one[..., 1] + apart * share, other[..., 1])
    squares = one[..., 2] + other[..., 2] + apart**2 * one[..., 0] * share
    return np.stack([number, mean, squares], axis=-1)


def earliest(days: Iterable[Any]) -> float | None:
    """The first of some days, of which those that are not known are None."""
    return min((float(day) for day in days if day is not None), default=None)


def _chosen(dataset: ParquetDataset, seed: int) -> tuple[np.ndarray, int]:
    """The row groups that a scan reads, and the number of blocks they are cut into."""
    chosen = np.flatnonzero(dataset.rows)
    if dataset.total > MOST:
        bits = np.random.Philox(key=[seed, 0], counter=[0, 0, 0, 2**33])
        chosen = np.random.Generator(bits).permutation(chosen)
        number = np.searchsorted(np.cumsum(dataset.rows[chosen]), MOST, side="right")
        chosen = np.sort(chosen[: max(1, int(number))])
    return chosen, min(BLOCKS, len(chosen))


def _union(values: Sequence[Any]) -> Any:
    """The values that processes saw of a column: strings with counts, or numbers."""
    if any(one is None for one in values):
        return None
    if not isinstance(values[0], dict):
        both = sorted({number for one in values for number in one})
        return both if len(both) <= MAX_VALUES else None
    texts = sorted({text for one in values for text in one})
    return {text: sum(one.get(text, 0) for one in values) for text in texts}


def _drawn(parts: Sequence[Part], values: list[Any]) -> np.ndarray:
    """The sample of all parts: rows of columns, strings as places in their order."""
    rows = []
    for part in parts:
        drawn = part.sample[np.isfinite(part.sample[:, 0])].copy()
        for at, texts in enumerate(part.values):
            if isinstance(texts, dict):
                order = {text: place for place, text in enumerate(sorted(values[at]))}
                places = np.array([*(order[text] for text in texts), np.nan])
                codes = np.where(np.isnan(drawn[:, at + 2]), -1, drawn[:, at + 2])
                drawn[:, at + 2] = places[codes.astype(int)]
        rows.append(drawn)
    drawn = np.concatenate(rows)
    order = np.lexsort((drawn[:, 1], drawn[:, 0]))[: len(parts[0].sample)]
    return drawn[order, 2:]
