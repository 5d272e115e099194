"""Constants among the parameters: what is not trained.

A network of Equinox holds its activation, a function, next to its weights. A run trains
the numbers with a fraction, and puts the rest back wherever the loss is evaluated.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from natgrad.errors import InputWarning, warn
from natgrad.families._base import is_distribution


class Constants:
    """Leaves that are not trained, and how they are put back among those that are.

    Two are equal if they hold the same objects, so that a run of the same parameters is
    compiled once.
    """

    def __init__(self, tree: PyTree = None) -> None:
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self.key = (structure, tuple(map(id, leaves))) if leaves else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constants) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, trained: PyTree) -> Any:
        """The parameters, from those that are trained."""
        if self.key is None:
            return trained
        is_none = lambda node: node is None
        choose = lambda constant, ours: ours if constant is None else constant
        return jax.tree.map(choose, self.tree, trained, is_leaf=is_none)


NONE = Constants()


def is_trained(node: object) -> bool:
    """Whether a node of a tree is a distribution or a number with a fraction."""
    return is_distribution(node) or eqx.is_inexact_array_like(node)


def divided(params: PyTree) -> tuple[Any, Constants]:
    """The parameters with None in the place of what is not trained, and the latter."""
    trained, rest = eqx.partition(params, is_trained, is_leaf=is_distribution)
    for path, leaf in jax.tree.leaves_with_path(rest):
        is_number = isinstance(leaf, int | np.ndarray | np.generic | jax.Array)
        kind = getattr(leaf, "dtype", type(leaf))
        if is_number and jnp.issubdtype(kind, jnp.integer):
            warn(
                f"{jax.tree_util.keystr(path).lstrip('.')} holds whole numbers, which "
                "are not trained; write them with a decimal point to train them",
                InputWarning,
            )
    return trained, Constants(rest)
