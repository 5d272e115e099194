"""Devices and hosts as one: the rows of a batch are shared out, all else is repeated.

A batch is cut into equal parts, one for each device of each process. A device sees its
part alone, and the loss of the batch is the mean of those of its parts. Whatever a rule
needs of the whole batch, it asks of `Across.mean`: one collective, of one flat vector.
Then all devices continue with the same numbers, and so make the same decisions.

Where a distribution is a batch of many, such as the latent functions of a classifier,
devices may share it out too, as a second axis. That is left to XLA's partitioner.
"""

import functools
import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array

from natgrad.data._batch import Batch
from natgrad.distributed import lost_peers
from natgrad.errors import InputError
from natgrad.families._base import is_distribution
from natgrad.linalg import AbstractPositiveDefinite


AXIS, LATENTS = "rows", "latents"

ALL, ROWS = P(), P(None, AXIS)
"""What every device has; batches of one step after another, cut by rows."""


class Across(NamedTuple):
    """The devices that share a batch, as a rule sees them: there are `number`.

    Where its rows differ in weight, so may its parts: then `is_uneven`.
    """

    number: int = 1
    is_uneven: bool = False

    def mean(self, tree: Any) -> Any:
        """The mean of a tree over all devices, by one collective.

        Of gradients of matrices one triangle is sent. It is for what was computed, and
        is not to be differentiated.
        """
        if self.number == 1:
            return tree
        nodes, structure = jax.tree.flatten(tree, is_leaf=_is_storage)
        packed, inner = jax.tree.flatten(
            [node.pack() if _is_storage(node) else node for node in nodes]
        )
        widest = max((leaf.dtype for leaf in packed), key=lambda kind: kind.itemsize)
        flat = jnp.concatenate([leaf.astype(widest).reshape(-1) for leaf in packed])
        flat = lax.psum(flat, AXIS) / self.number
        ends = np.cumsum([leaf.size for leaf in packed])[:-1]
        pairs = zip(jnp.split(flat, ends), packed, strict=True)
        means = [part.reshape(like.shape).astype(like.dtype) for part, like in pairs]
        means = jax.tree.unflatten(inner, means)
        pairs = zip(nodes, means, strict=True)
        whole = [node.unpack(m) if _is_storage(node) else m for node, m in pairs]
        return jax.tree.unflatten(structure, whole)

    def part(self, batch: Any) -> tuple[Any, "Across"]:
        """This device's part of a batch, whose rows stand for those of all devices."""
        if self.number == 1 or not isinstance(batch, Batch):
            return batch, self
        weight = batch.weight
        if weight is None:
            dtype = np.result_type(batch.x.dtype, np.float32)
            ones = jnp.full(len(batch.x), self.number, dtype)
            return batch._replace(weight=ones), self
        return batch._replace(weight=self.number * weight), Across(self.number, True)

    def key(self, key: Array) -> Array:
        """A key of this device's own."""
        if self.number == 1:
            return key
        return jax.random.fold_in(key, lax.axis_index(AXIS))


ALONE = Across()

UNEQUAL = 1e-4
"""How far, as a share, a loss may be from the mean of its halves: rounding is less."""


class Devices(NamedTuple):
    """All devices of all processes, or those of them that a batch can be cut for."""

    mesh: Mesh | None = None

    @property
    def across(self) -> Across:
        return ALONE if self.mesh is None else Across(self.mesh.shape[AXIS])

    @property
    def latents(self) -> int:
        """How many devices share out a batch of distributions."""
        return 1 if self.mesh is None else self.mesh.shape[LATENTS]

    @property
    def process(self) -> int:
        return jax.process_index()

    @property
    def processes(self) -> int:
        return 1 if self.mesh is None else jax.process_count()

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes for all."""
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
                axis_names={AXIS},
                check_vma=False,
            )
            return self._laid_out(mapped(first, batches, *rest))

        return called

    def spread(self, tree: Any) -> Any:
        """A tree that is the same in all processes, on every device."""
        if self.mesh is None:
            return tree

        def placed(leaf: Any, sharding: NamedSharding) -> Any:
            is_array = isinstance(leaf, jax.Array)
            if is_array and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
                return leaf
            # A copy for each: what is donated must not be shared with the caller.
            value = np.asarray(leaf)
            at = lambda place: np.array(value[place])
            return jax.make_array_from_callback(value.shape, sharding, at)

        return jax.tree.map(placed, tree, self._shardings(tree))

    def place(self, batches: Any) -> Any:
        """The rows of this process, [steps, rows, ...], on its devices."""
        if self.mesh is None:
            return batches
        sharding = NamedSharding(self.mesh, ROWS)
        put = functools.partial(jax.make_array_from_process_local_data, sharding)
        return jax.tree.map(put, batches)

    def local(self, tree: Any) -> Any:
        """What all devices have together, on one device of this process."""
        if self.mesh is None:
            return tree
        tree = self.gather(tree)
        is_shared = lambda leaf: isinstance(leaf, jax.Array)
        one = lambda leaf: leaf.addressable_data(0) if is_shared(leaf) else leaf
        return jax.tree.map(one, tree)

    def gather(self, tree: Any) -> Any:
        """What the devices have together, on every device."""
        if self.mesh is None or self.latents == 1:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        with lost_peers():
            leaves = _gathered(self.mesh)(leaves)
        return jax.tree.unflatten(structure, leaves)

    def _shardings(self, tree: Any) -> Any:
        """Where each leaf lies: those of a batch of distributions may be shared out."""
        mesh, parts = self.mesh, self.latents
        assert mesh is not None
        whole, cut = NamedSharding(mesh, ALL), NamedSharding(mesh, P(LATENTS))

        def of_node(node: Any) -> Any:
            is_cut = is_distribution(node) and parts > 1
            leaves = jax.tree.leaves(node)
            is_cut = is_cut and all(len(x.shape) > 1 for x in leaves)
            is_cut = is_cut and all(x.shape[0] % parts == 0 for x in leaves)
            return jax.tree.map(lambda _: cut if is_cut else whole, node)

        return jax.tree.map(of_node, tree, is_leaf=is_distribution)

    def _laid_out(self, tree: Any) -> Any:
        """Has a result of compiled code lie as what it goes back in as."""
        if self.latents == 1:
            return tree
        constrained = jax.lax.with_sharding_constraint
        return jax.tree.map(constrained, tree, self._shardings(tree))

    def shared(self, batches: Any) -> Any:
        """The same batches, of which this process gets its rows."""
        if self.processes == 1:
            return batches
        if not hasattr(batches, "share"):
            raise InputError(
                f"a {type(batches).__name__} cannot be split between "
                f"{self.processes} processes: it has no method share(process, "
                "processes), as natgrad.data.Arrays and Parquet have"
            )
        return batches.share(self.process, self.processes)

    def broadcast(self, tree: Any) -> Any:
        """A tree of numbers as the first process has it, to the last bit."""
        if self.processes == 1:
            return tree
        leaves, structure = jax.tree.flatten(tree)
        arrays = [np.asarray(leaf) for leaf in leaves]
        data = np.frombuffer(b"".join(a.tobytes() for a in arrays), np.uint8)
        with lost_peers():
            data = multihost_utils.broadcast_one_to_all(data, self.is_first)
        ends = np.cumsum([a.nbytes for a in arrays])[:-1]
        parts = zip(np.split(np.asarray(data), ends), arrays, strict=True)
        values = [
            np.frombuffer(p.tobytes(), a.dtype).reshape(a.shape) for p, a in parts
        ]
        return jax.tree.unflatten(structure, values)

    def barrier(self) -> None:
        """Waits for all processes."""
        self.max_over_processes([0.0])

    def max_over_processes(self, values: list[float]) -> list[float]:
        """The largest of each number over all processes: what they agree on."""
        if self.mesh is None or self.processes == 1:
            return values
        here = len(self.mesh.local_devices)
        dtype = jax.dtypes.canonicalize_dtype(float)
        rows = np.tile(np.asarray(values, dtype), (here, 1))
        sharding = NamedSharding(self.mesh, P((AXIS, LATENTS)))
        stacked = jax.make_array_from_process_local_data(sharding, rows)
        with lost_peers():
            return np.asarray(_largest(self.mesh)(stacked)).tolist()


def unlike_parts(loss: Any, params: Any, batches: Any) -> str | None:
    """Why devices cannot share a loss: on a batch it is not the mean over its halves.

    A sum over rows, or a weighted mean that does not know all weights, would be wrong
    on several devices without an error. A loss with a key cannot be compared.
    """
    if "key" in inspect.signature(loss).parameters:
        return None
    batch = getattr(batches, "first", None)  # of what can be gone through but once
    if batch is None and (taken := batches.take(0, 1)) is not None:
        batch = jax.tree.map(lambda leaf: np.asarray(leaf)[0], taken)
    half = 0 if batch is None else len(jax.tree.leaves(batch)[0]) // 2
    if not half:
        return None
    if isinstance(batch, Batch) and batch.weight is not None:
        uneven = np.where(np.arange(len(batch.x)) < half, 1, 3)
        batch = batch._replace(weight=np.asarray(batch.weight) * uneven)
    cut = lambda begin, end: jax.tree.map(lambda leaf: leaf[begin:end], batch)
    halves = [Across(2).part(cut(0, half))[0], Across(2).part(cut(half, 2 * half))[0]]
    whole = float(loss(params, cut(0, 2 * half)))
    mean = sum(float(loss(params, part)) for part in halves) / 2
    if not np.isfinite(whole) or abs(whole - mean) <= UNEQUAL * (abs(whole) + 1):
        return None
    return (
        f"the loss of a batch is {whole:.6g}, but the mean over its halves is "
        f"{mean:.6g}; for several devices it should be an estimate for all the data, "
        "such as num_data times a mean over rows, or a weighted sum"
    )


@functools.lru_cache(maxsize=8)
def _largest(mesh: Mesh) -> Any:
    return jax.jit(lambda rows: rows.max(0), out_shardings=NamedSharding(mesh, ALL))


@functools.lru_cache(maxsize=8)
def _gathered(mesh: Mesh) -> Any:
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, ALL))


def devices_for(rows: int | None, latents: int = 1) -> Devices:
    """The devices that batches of so many rows, of all processes, are cut for.

    All there are, if they divide the rows; of one process alone as many as do. Of them
    `latents` at a time have the same rows, and share out batches of distributions.
    """
    everywhere = jax.devices()
    if len(everywhere) % latents or jax.local_device_count() % latents:
        raise InputError(
            f"latent_parts is {latents}; it should divide the "
            f"{jax.local_device_count()} devices of a process"
        )
    if latents > 1:
        number = len(everywhere) // latents
        if rows is None or rows % number:
            raise InputError(
                f"batches have {rows} rows, which cannot be split equally for {number} "
                f"times {latents} devices; use a multiple of {number}"
            )
        return meshed(everywhere, latents)
    if jax.process_count() > 1:
        if rows is None or rows % len(everywhere):
            raise InputError(
                f"batches have {rows} rows, which {len(everywhere)} devices cannot "
                f"split equally; use a multiple of {len(everywhere)}"
            )
        return meshed(everywhere)
    if rows is None or len(everywhere) == 1:
        return Devices()
    number = max(n for n in range(1, len(everywhere) + 1) if rows % n == 0)
    if number == 1:
        return Devices()
    return meshed(everywhere[:number])


def meshed(devices: list[Any], latents: int = 1) -> Devices:
    """Some devices as one, of which `latents` at a time have the same rows."""
    table = np.asarray(devices).reshape(-1, latents)
    return Devices(Mesh(table, (AXIS, LATENTS)))


def _is_storage(node: Any) -> bool:
    return isinstance(node, AbstractPositiveDefinite)
