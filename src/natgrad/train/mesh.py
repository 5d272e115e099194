"""Devices and hosts as one: the rows of a batch are shared out, all else is repeated.

A batch is cut into equal parts, one for each device of each process. A device sees its
part alone, and the loss of the batch is the mean of those of its parts. Whatever a rule
needs of the whole batch, it asks of `Across.mean`: one collective, of one flat vector.
Then all devices go on with the same numbers, and so to the same decisions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from natgrad.data.batch import Batch
from natgrad.distributed import lost_peers
from natgrad.errors import InputError
from natgrad.linalg import Full, Log, Sqrt
from natgrad.triangular import mirrored, symmetric


AXIS = "rows"

ALL, ROWS = PartitionSpec(), PartitionSpec(None, AXIS)
"""What every device has; batches of one step after another, cut by rows."""


class Across(NamedTuple):
    """The devices that share a batch, as a rule sees them: there are `number`."""

    number: int = 1

    def mean(self, tree: Any) -> Any:
        """The mean of a tree over all devices, by one collective.

        Of gradients of matrices one triangle is sent. It is for what was computed, and
        is not to be differentiated.
        """
        if self.number == 1:
            return tree
        nodes, structure = jax.tree.flatten(tree, is_leaf=_is_storage)
        packed, inner = jax.tree.flatten([_packed(node) for node in nodes])
        widest = jnp.result_type(*(leaf.dtype for leaf in packed))
        flat = jnp.concatenate([leaf.astype(widest).reshape(-1) for leaf in packed])
        flat = lax.psum(flat, AXIS) / self.number
        ends = np.cumsum([leaf.size for leaf in packed])[:-1]
        pairs = zip(jnp.split(flat, ends), packed, strict=True)
        means = [part.reshape(like.shape).astype(like.dtype) for part, like in pairs]
        means = jax.tree.unflatten(inner, means)
        whole = [_unpacked(m, node) for m, node in zip(means, nodes, strict=True)]
        return jax.tree.unflatten(structure, whole)

    def part(self, batch: Any) -> Any:
        """This device's part of a batch, whose rows stand for those of all devices."""
        if self.number == 1 or not isinstance(batch, Batch):
            return batch
        weight = batch.weight
        if weight is None:
            dtype = jnp.promote_types(batch.x.dtype, jnp.float32)
            weight = jnp.ones(len(batch.y), dtype)
        return batch._replace(weight=self.number * weight)

    def key(self, key: Array) -> Array:
        """A key of this device's own."""
        if self.number == 1:
            return key
        return jax.random.fold_in(key, lax.axis_index(AXIS))


ALONE = Across()


class Devices(NamedTuple):
    """All devices of all processes, or those of them that a batch can be cut for."""

    mesh: Mesh | None = None

    @property
    def across(self) -> Across:
        return ALONE if self.mesh is None else Across(self.mesh.size)

    @property
    def process(self) -> int:
        return jax.process_index()

    @property
    def processes(self) -> int:
        return 1 if self.mesh is None else jax.process_count()

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that speaks and writes for all."""
        return self.processes == 1 or self.process == 0

    def sharded(self, function: Any) -> Any:
        """A function of what all devices have, whose second argument is batches."""
        if self.mesh is None:
            return function

        def called(first: Any, batches: Any, *rest: Any) -> Any:
            specs = (ALL, ROWS, *(ALL for _ in rest))
            # What varies between devices is not tracked: nothing that is differentiated
            # holds a collective, and so gradients are those of a device's own part.
            mapped = jax.shard_map(
                function,
                mesh=self.mesh,
                in_specs=specs,
                out_specs=ALL,
                check_vma=False,
            )
            return mapped(first, batches, *rest)

        return called

    def spread(self, tree: Any) -> Any:
        """A tree that is the same in all processes, on every device."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, ALL)

        def placed(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
                return leaf
            # A copy for each: what is donated must not be shared with the caller.
            value = np.asarray(leaf)
            at = lambda _: np.array(value)
            return jax.make_array_from_callback(value.shape, sharding, at)

        return jax.tree.map(placed, tree)

    def place(self, batches: Any) -> Any:
        """The rows of this process, [steps, rows, ...], on its devices."""
        if self.mesh is None:
            return batches
        sharding = NamedSharding(self.mesh, ROWS)
        put = functools.partial(jax.make_array_from_process_local_data, sharding)
        return jax.tree.map(put, batches)

    def local(self, tree: Any) -> Any:
        """What every device has, on one device of this process."""
        if self.mesh is None:
            return tree
        is_shared = lambda leaf: isinstance(leaf, jax.Array)
        one = lambda leaf: leaf.addressable_data(0) if is_shared(leaf) else leaf
        return jax.tree.map(one, tree)

    def shared(self, batches: Any) -> Any:
        """The same batches, of which this process gets its rows."""
        if self.processes == 1:
            return batches
        if not hasattr(batches, "share"):
            raise InputError(
                f"a {type(batches).__name__} cannot be shared out to "
                f"{self.processes} processes: it has no method share(process, "
                "processes), as natgrad.data.Arrays and Parquet have"
            )
        return batches.share(self.process, self.processes)

    def most(self, values: list[float]) -> list[float]:
        """The largest of each number over all processes: what they agree on."""
        if self.mesh is None or self.processes == 1:
            return values
        here = len(self.mesh.local_devices)
        rows = np.tile(np.asarray(values, np.float32), (here, 1))
        sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
        stacked = jax.make_array_from_process_local_data(sharding, rows)
        with lost_peers():
            return np.asarray(_largest(self.mesh)(stacked)).tolist()


@functools.lru_cache(maxsize=8)
def _largest(mesh: Mesh) -> Any:
    return jax.jit(lambda rows: rows.max(0), out_shardings=NamedSharding(mesh, ALL))


def devices_for(rows: int | None) -> Devices:
    """The devices that batches of so many rows, of all processes, are cut for.

    All there are, if they divide the rows; of one process alone as many as do.
    """
    everywhere = jax.devices()
    if jax.process_count() > 1:
        if rows is None or rows % len(everywhere):
            raise InputError(
                f"batches have {rows} rows, which are not equal parts for "
                f"{len(everywhere)} devices; take a multiple of {len(everywhere)}"
            )
        return Devices(Mesh(np.asarray(everywhere), (AXIS,)))
    if rows is None or len(everywhere) == 1:
        return Devices()
    number = max(n for n in range(1, len(everywhere) + 1) if rows % n == 0)
    if number == 1:
        return Devices()
    return Devices(Mesh(np.asarray(everywhere[:number]), (AXIS,)))


def _is_storage(node: Any) -> bool:
    return type(node) in (Full, Sqrt, Log)


def _packed(node: Any) -> Any:
    """One triangle of a gradient that has zeros, or the same again, in the other.

    Its lower right quarter goes into the upper left one, where there is room.
    """
    if not _is_storage(node):
        return node
    (matrix,) = jax.tree.leaves(node)
    size = matrix.shape[-1]
    odd, half = size % 2, (size + 1) // 2
    blank = [(0, 0)] * (matrix.ndim - 2)
    matrix = matrix if isinstance(node, Sqrt) else symmetric(matrix)
    matrix = jnp.pad(matrix, [*blank, (0, odd), (0, odd)])
    left, right = matrix[..., :half, :half], matrix[..., half:, half:]
    left = jnp.pad(jnp.tril(left), [*blank, (0, 0), (0, 1)])
    right = jnp.pad(jnp.triu(right.mT), [*blank, (0, 0), (1, 0)])
    return [left + right, matrix[..., half:, :half]]


def _unpacked(packed: Any, node: Any) -> Any:
    if not _is_storage(node):
        return packed
    triangles, below = packed
    (matrix,), structure = jax.tree.flatten(node)
    size = matrix.shape[-1]
    left = jnp.tril(triangles[..., :-1])
    right = jnp.triu(triangles[..., 1:]).mT
    above = jnp.concatenate([left, jnp.zeros_like(below)], -1)
    lower = jnp.concatenate([above, jnp.concatenate([below, right], -1)], -2)
    lower = lower[..., :size, :size]
    whole = lower if isinstance(node, Sqrt) else mirrored(lower)
    return jax.tree.unflatten(structure, [whole])
