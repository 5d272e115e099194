"""Rows as arrays, and where batches come from: a function of (seed, step)."""

import copy
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Num

from natgrad._padding import fill_up, padded_size
from natgrad._text import listed
from natgrad.data._table import is_frame, require_numbers
from natgrad.errors import InputError, InputWarning, warn


FINGERPRINTED = 2**16
"""How many rows of a table go into its fingerprint."""


FILLED = 64
"""Batches of many rows are padded to a multiple of this."""


Columns = dict[str, Any]


class _Fields(NamedTuple):
    x: Num[Array | np.ndarray, "B D"]
    y: Array | np.ndarray
    weight: Float[Array | np.ndarray, " B"] | None
    columns: dict[str, Array | np.ndarray]


class Batch(_Fields):
    """Inputs, targets and weights of rows; without weights each row counts once.

    `columns` come with the targets, such as {"exposure": years}: see
    `natgrad.gp.likelihoods`.

    >>> batch = natgrad.data.Batch(x, y)
    >>> batch.x.shape, batch.weight is None
    ((50, 1), True)
    """

    def __new__(cls, x: Any, y: Any, weight: Any = None, columns: Any = None):
        return super().__new__(cls, x, y, weight, {} if columns is None else columns)


@runtime_checkable
class Batches(Protocol):
    """A source of batches, all of one shape, that can start at any step."""

    @property
    def fraction(self) -> float | None:
        """The share of the data in a batch, if it is known."""
        ...

    @property
    def num_data(self) -> float | None:
        """The total weight of all rows, if it is known."""
        ...

    def take(self, step: int, number: int) -> Any:
        """The batches of `number` steps from `step` on, stacked; fewer at the end."""
        ...


class Arrays:
    """Batches of columns in memory, in one shuffled pass after another.

    Passes follow each other without a gap, so no batch is short and every row appears
    equally often. A table of at most `batch_size` rows is always one batch.

    A source of your own needs what this one has: `take`, and as properties `fraction`
    and `num_data`, which may be None.

    Raises:
        InputError: If `batch_size` is below 1, or the columns have no rows or unequal
            numbers of rows.

    >>> batches = natgrad.data.Arrays((x, y), batch_size=10)
    >>> rows, targets = batches.take(step=0, number=3)  # three batches, stacked
    >>> rows.shape, targets.shape
    ((3, 10, 1), (3, 10))
    """

    def __init__(self, columns: Any, batch_size: int = 256, seed: int = 0):
        self.columns = jax.tree.map(np.asarray, columns)
        if not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise InputError(
                f"batch_size is {batch_size!r}; a batch should have at least one row"
            )
        leaves = jax.tree.leaves(self.columns)
        if not all(leaf.ndim for leaf in leaves):
            raise InputError(
                f"the data is {_shown(columns)}; it should be arrays with one row "
                "per observation, such as (x, y)"
            )
        lengths = {len(leaf) for leaf in leaves}
        if len(lengths) != 1 or not min(lengths):
            counts = [len(leaf) for leaf in leaves]
            raise InputError(
                f"the columns have {sorted(lengths)} rows (in their order {counts}); "
                "they should all have equally many, at least one"
            )
        self.total, self.seed = lengths.pop(), seed
        self.batch_size = min(batch_size, self.total)
        self._passes: dict[int, np.ndarray] = {}
        self._mine = slice(None)

    @property
    def fraction(self) -> float:
        """The share of the data in a batch."""
        return self.batch_size / self.total

    @property
    def num_data(self) -> float:
        """The total weight of all rows."""
        weight = getattr(self.columns, "weight", None)
        return float(self.total if weight is None else weight.sum())

    def take(self, step: int, number: int) -> Any:
        """The batches of `number` steps from `step` on, stacked."""
        places = self.places(step, number)
        return jax.tree.map(lambda column: column.take(places, axis=0), self.columns)

    def places(self, step: int, number: int) -> np.ndarray:
        """The indices of the rows in each batch, [number, rows]."""
        if self.batch_size == self.total:
            every = np.broadcast_to(np.arange(self.total), (number, self.total))
            return every[:, self._mine]
        begin, end = step * self.batch_size, (step + number) * self.batch_size
        first, last = begin // self.total, (end - 1) // self.total
        passes = [self._pass(number) for number in range(first, last + 1)]
        offset = first * self.total
        places = np.concatenate(passes)[begin - offset : end - offset]
        return places.reshape(number, -1)[:, self._mine]

    def whole(self) -> "Arrays":
        """All rows as one batch, padded so that few sizes are compiled."""
        rows = padded(self.columns)
        return Arrays(rows, len(rows.x), self.seed)

    def share(self, process: int, processes: int) -> "Arrays":
        """The same batches, with only the rows of one of several processes."""
        check_share(process, processes)
        if self.batch_size % processes:
            near = max(1, self.batch_size // processes) * processes
            raise InputError(
                f"batches of {self.batch_size} rows cannot be shared equally by "
                f"{processes} processes; use batch_size={near}"
            )
        shared, each = copy.copy(self), self.batch_size // processes
        shared._mine = slice(process * each, (process + 1) * each)
        return shared

    def fingerprint(self) -> str:
        """The SHA-256 of the columns, or of some of their rows if they are many."""
        digest = hashlib.sha256()
        stride = max(1, self.total // FINGERPRINTED)
        for leaf in jax.tree.leaves(self.columns):
            digest.update(f"{leaf.dtype}{leaf.shape}".encode())
            digest.update(np.ascontiguousarray(leaf[::stride]).tobytes())
        return digest.hexdigest()

    def _pass(self, number: int) -> np.ndarray:
        if number not in self._passes:
            kept = {key: self._passes[key] for key in self._passes if key == number - 1}
            generator = np.random.Generator(np.random.Philox(key=[self.seed, number]))
            self._passes = {**kept, number: generator.permutation(self.total)}
        return self._passes[number]


class Sample(Arrays):
    """Batches whose weighted sums are, on average, those of the whole table.

    So the number of rows is no part of what is compiled for them. A table of one batch
    is filled up to one of few sizes.
    """

    def __init__(self, columns: Batch, batch_size: int = 256, seed: int = 0):
        if len(columns.x) <= batch_size:
            columns = padded(columns)
            batch_size = len(columns.x)
        super().__init__(_weighted(columns), batch_size, seed)
        weight = np.asarray(self.columns.weight)
        self.known = float(weight.sum())
        self.columns = self.columns._replace(weight=weight / self.fraction)

    @property
    def num_data(self) -> float:
        return self.known


def some_rows(batch: Batch, rows: Any) -> Batch:
    """Some rows of a batch, by their places or a slice."""
    return jax.tree.map(lambda column: column[rows], batch)


def padded(batch: Batch) -> Batch:
    """Rows of weight 0 up to a power of two, so that few sizes are compiled.

    Or up to one more of `FILLED`, where a power of two would be much more work.
    """
    size = len(batch.x)
    is_small = size <= 4 * FILLED
    return pad_rows(batch, padded_size(size) if is_small else size + -size % FILLED)


def pad_rows(batch: Batch, size: int) -> Batch:
    """A batch of `size` rows: those that are missing repeat the first, of weight 0."""
    filled = fill_up(_weighted(batch), size, row=0)
    is_row = np.arange(size) < len(batch.x)
    return filled._replace(weight=filled.weight * is_row.astype(filled.weight.dtype))


def pieces(batch: Batch, size: int) -> Iterator[Batch]:
    """The rows in pieces of at most `size`."""
    for start in range(0, len(batch.x), size):
        yield some_rows(batch, slice(start, start + size))


def blocks(batch: Batch, most: int) -> Batch:
    """The rows in blocks of one size, at most `most`: [blocks, size, ...]."""
    size = min(most, len(batch.x))
    rows = pad_rows(batch, len(batch.x) + -len(batch.x) % size)
    cut = lambda column: column.reshape(-1, size, *column.shape[1:])
    return jax.tree.map(cut, rows)


class IterableBatches:
    """Batches of any iterable, which starts again when it ends, if it can.

    To start at a step, it draws the batches before it again and drops them. A `Batch`
    with fewer rows than the first is padded with rows of weight 0. `num_data` is the
    number of rows in all batches, which the ELBO needs.

    Raises:
        InputError: If there are no batches.

    >>> parts = [natgrad.data.Batch(x[i::5], y[i::5]) for i in range(5)]
    >>> batches = natgrad.data.IterableBatches(parts, num_data=len(y))
    >>> batches.fraction, batches.take(step=0, number=2).x.shape
    (0.2, (2, 10, 1))
    """

    def __init__(self, batches: Iterable[Any], num_data: int | float | None = None):
        self.batches, self.num_data = batches, num_data
        self.batch_size: int | None = None
        self._step, self._iterator = 0, self._endless()
        first = next(self._iterator, None)
        if first is None:
            raise InputError("the batches are empty; there should be at least one")
        self.first = first
        self._iterator = itertools.chain([first], self._iterator)

    @property
    def fraction(self) -> float | None:
        """The share of the data in a batch, if it is known."""
        if self.num_data is None:
            return None
        return min(1.0, _rows(self.first) / self.num_data)

    def take(self, step: int, number: int) -> Any:
        """The batches of `number` steps from `step` on, stacked; fewer at the end."""
        if step < self._step:
            self._step, self._iterator = 0, self._endless()
        skipped = step - self._step
        drawn = list(itertools.islice(self._iterator, skipped, skipped + number))
        self._step = step + len(drawn)
        if not drawn:
            return None
        return jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)

    @property
    def is_repeatable(self) -> bool:
        """Whether the iterable can start again, which a generator cannot."""
        return iter(self.batches) is not self.batches

    def _endless(self) -> Iterator[Any]:
        """Pass after pass; a generator can be passed through but once."""
        while True:
            is_empty = True
            for batch in self.batches:
                full = self._filled(as_batch(batch))
                if full is not None:
                    is_empty = False
                    yield full
            if is_empty or not self.is_repeatable:
                return

    def _filled(self, batch: Any) -> Any:
        """A batch of the common size."""
        size = _rows(batch)
        rows = self.batch_size = self.batch_size or size
        if size == rows:
            return batch if not isinstance(batch, Batch) else _weighted(batch)
        if size > rows:
            raise InputError(
                f"a batch has {size} rows, and the first had {rows}; none should "
                "have more than the first"
            )
        if not isinstance(batch, Batch):
            warn(
                f"a batch of {size} rows was left out, as the first had {rows}; "
                "give natgrad.data.Batch(x, y), which natgrad can pad",
                InputWarning,
            )
            return None
        return pad_rows(batch, rows)


def as_batch(data: Any) -> Any:
    """A pair or a triple of arrays or frames as a `Batch` of arrays; others as is."""
    is_pair = isinstance(data, tuple | list) and len(data) in (2, 3)
    if not isinstance(data, Batch) and not is_pair:
        return jax.tree.map(np.asarray, data)
    given = data if isinstance(data, Batch) else Batch(*data)
    x = as_array(given.x)
    x = x[:, None] if x.ndim == 1 else x
    weight = None if given.weight is None else _flat(given.weight).astype(x.dtype)
    if not isinstance(given.columns, Mapping):
        raise InputError(
            f"columns is {_shown(given.columns)}; it should be a dictionary"
        )
    columns = {name: _flat(column) for name, column in given.columns.items()}
    return Batch(x, _flat(given.y), weight, columns)


def _flat(column: Any) -> Any:
    """A column as an array, without an axis of its own."""
    array = as_array(column)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def as_array(column: Any) -> Any:
    """Columns of numbers, of NumPy, JAX, pandas, polars or Arrow, as an array."""
    if column is None:
        return None
    if isinstance(column, dict):
        raise InputError(
            f"there is a dictionary of {listed(column)} where an array should be; give "
            "natgrad.data.Batch(x, y, columns={...}) for columns with the targets"
        )
    require_numbers(column)
    try:
        return np.asarray(column)
    except ValueError as error:
        raise InputError(
            f"{_shown(column)} cannot be an array: {error}; its rows should be equally "
            "long"
        ) from error


def as_batches(data: Any, batch_size: int = 256, seed: int = 0) -> Batches:
    """Batches of whatever was given: of columns in memory, or of an iterable of them.

    A pair (x, y), a triple (x, y, weight) or any other tree of arrays is one table, cut
    into batches of `batch_size`; anything else that can be iterated over gives batches.
    """
    if isinstance(data, Batches):
        return data
    if isinstance(data, tuple | dict | np.ndarray | jax.Array):
        return Arrays(as_batch(data), batch_size, seed)
    if is_frame(data):
        raise InputError(
            f"the data is {_shown(data)}, and which column is the target is not "
            "known: give a pair (x, y), such as (frame[inputs], frame[target])"
        )
    if isinstance(data, Iterable):
        return IterableBatches(data)
    return Arrays(as_batch(data), batch_size, seed)


def check_share(process: int, processes: int) -> None:
    """Refuses to be a process that there is not."""
    if not 0 <= process < processes:
        raise InputError(
            f"process is {process} of {processes}; it should be from 0 to "
            f"{max(processes, 1) - 1}"
        )


def _rows(batch: Any) -> int:
    leaves = jax.tree.leaves(batch)
    if not leaves or not leaves[0].ndim:
        raise InputError(
            f"a batch is {_shown(batch)}; it should be arrays with one row per "
            "observation, such as (x, y)"
        )
    return len(leaves[0])


def _shown(thing: Any) -> str:
    """A thing by its class, or by itself if it is short."""
    kind = type(thing)
    return repr(thing) if kind in (str, int, float) else f"a {kind.__name__}"


def _weighted(batch: Batch) -> Batch:
    if batch.weight is not None:
        return batch
    dtype = np.result_type(batch.x.dtype, np.float32)
    return batch._replace(weight=np.ones(len(batch.x), dtype))
