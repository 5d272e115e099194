"""A saved state, and how it is put back into the structure it came from."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import CheckpointError, InputError


NUMBERS = (bool, int, float, complex)


class Leaf(NamedTuple):
    """What is known of one leaf of a saved state beside its value."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    is_weak: bool

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Checkpoint(NamedTuple):
    """A state that was read back whole, and the configuration it was saved with."""

    step: int
    config: dict[str, Any]
    score: float | None
    leaves: list[Leaf]
    values: list[np.ndarray]

    def restore(self, like: Any) -> Any:
        """The state, with the structure, the static fields and the devices of `like`.

        The values of `like` do not matter. Leaves that are neither arrays nor numbers,
        such as functions, are not saved: those of `like` are kept.
        """
        leaves, treedef = jax.tree.flatten(like)
        wanted = described(like)
        if found := _differences(self.leaves, list(wanted.values())):
            more = [f"and {len(found) - 5} more"] if found[5:] else []
            listed = "; ".join(found[:5] + more)
            raise CheckpointError(
                f"the checkpoint of step {self.step} is of another state: {listed}"
            )
        for place, saved, value in zip(wanted, self.leaves, self.values, strict=True):
            leaves[place] = _placed(value, saved, leaves[place])
        return jax.tree.unflatten(treedef, leaves)


def described(state: Any) -> dict[int, Leaf]:
    """The leaves that are saved, by their place among all leaves."""
    found: dict[int, Leaf] = {}
    for place, (path, leaf) in enumerate(jax.tree.leaves_with_path(state)):
        name = jax.tree_util.keystr(path) or "the state"
        if isinstance(leaf, NUMBERS):
            leaf = np.asarray(leaf)
        if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
            continue
        dtype = leaf.dtype
        if jnp.issubdtype(dtype, jax.dtypes.extended):
            raise InputError(f"{name} is a {dtype}; save its jax.random.key_data")
        if dtype.kind in "OSUMm" or not dtype.isnative:
            raise InputError(f"{name} is of type {dtype}; a state is of numbers")
        is_weak = bool(getattr(leaf, "weak_type", False))
        found[place] = Leaf(name, dtype.name, tuple(leaf.shape), is_weak)
    return found


def _differences(saved: list[Leaf], wanted: list[Leaf]) -> list[str]:
    ours, theirs = ({leaf.path: leaf for leaf in side} for side in (saved, wanted))
    kind = lambda leaf: str(leaf) if leaf else "missing"
    found = [
        f"{path} was {kind(ours.get(path))} and is {kind(theirs.get(path))}"
        for path in ours | theirs
        if kind(ours.get(path)) != kind(theirs.get(path))
    ]
    in_order = [leaf.path for leaf in saved] == [leaf.path for leaf in wanted]
    return found if found or in_order else ["its leaves are in another order"]


def _placed(value: np.ndarray, saved: Leaf, like: Any) -> Any:
    """The value as what `like` is: a number, a NumPy array, or one on its devices."""
    if isinstance(like, NUMBERS):
        return type(like)(value)
    if isinstance(like, np.ndarray | np.generic):
        return value[()] if isinstance(like, np.generic) else value.copy()
    sharding = like.sharding if getattr(like, "committed", True) else None
    placed = jax.device_put(value, sharding, may_alias=False)
    if saved.is_weak:
        # A type that gives way to others is part of what is compiled. Only what grew
        # out of a Python number has it.
        blank = jnp.full(saved.shape, value.dtype.type(0).item(), device=sharding)
        weak = blank.at[...].set(placed)
        placed = weak if weak.dtype == placed.dtype else placed
    return placed
