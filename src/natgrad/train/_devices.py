"""What shares the work of a run: one device by default, and the seam for more.

The loop asks `Devices` for all that concerns other devices and processes.
One device of one process answers with what it was given.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from natgrad.data._batches import Batch
from natgrad.distributed import place as place
from natgrad.linalg import AbstractPositiveDefinite


AXIS = "rows"


class Across(NamedTuple):
    """The devices that share a batch, as a rule sees them: there are `number`.

    Where its rows differ in weight, so may its parts: then `is_uneven`.
    """

    number: int = 1
    is_uneven: bool = False

    def mean(self, tree: PyTree) -> Any:
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

    def part(self, batch: PyTree) -> tuple[Any, "Across"]:
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


class Devices:
    """What takes the steps of a run: here one device, on which everything is already.

    `natgrad.train._mesh.ManyDevices` answers for many, of one process or of several.
    """

    mesh: Any = None
    """How JAX sees several devices."""

    across = ALONE
    """The devices that share a batch."""

    is_first = True
    """Whether this process prints and writes for all."""

    is_one_process = True
    """Whether this process may end a run by itself."""

    def running(self) -> contextlib.AbstractContextManager[None]:
        """The time in which steps are taken."""
        return contextlib.nullcontext()

    def share(self, batches: Any, config: dict[str, Any]) -> Any:
        """The batches, of which this process gets its rows.

        Raises:
            InputError: If `config` is not the same in all processes.
        """
        return batches

    def begin(self, state: PyTree, seconds: float) -> tuple[Any, float]:
        """The state that a run begins with, as the first process has it."""
        return state, seconds

    def sharded(self, function: Callable[..., Any]) -> Any:
        """A function of what all devices have, whose second argument is batches."""
        return function

    def spread(self, tree: PyTree) -> Any:
        """A tree that is the same in all processes, on every device."""
        return tree

    def place(self, batches: PyTree) -> Any:
        """The rows of this process, [steps, rows, ...], on its devices."""
        return batches

    def local(self, tree: PyTree) -> Any:
        """What all devices have, on one device of this process."""
        return tree

    def agree(self, values: list[float]) -> list[float]:
        """The largest of each number over all processes."""
        return values

    # Equal ones share what is compiled.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Devices) and self.mesh == other.mesh

    def __hash__(self) -> int:
        return hash(self.mesh)


def _is_storage(node: object) -> bool:
    return isinstance(node, AbstractPositiveDefinite)
