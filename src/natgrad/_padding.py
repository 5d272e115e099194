"""Rows in pieces of few different sizes, so that few programs are compiled."""

import math
from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import PyTree


LEAST = 16
"""The fewest rows of a piece."""


def padded_size(rows: int) -> int:
    """The next power of two."""
    return max(LEAST, 2 ** math.ceil(math.log2(rows)))


def fill_up(tree: PyTree, size: int, start: int = 0, row: int = -1) -> PyTree:
    """`size` rows of columns, from `start` on; missing ones repeat a row of theirs.

    Not zeros, at which a likelihood may be infinite.
    """
    total = len(jax.tree.leaves(tree)[0])
    places = np.arange(start, start + size)
    places = np.where(places < total, places, row % total)
    return jax.tree.map(lambda column: column[places], tree)


def chunks(tree: PyTree, most: int) -> Iterator[tuple[PyTree, int]]:
    """Columns cut into pieces of at most so many rows, and how many each has.

    The last one is padded.
    """
    tree = jax.tree.map(np.asarray, tree)
    total = len(jax.tree.leaves(tree)[0])
    for start in range(0, total, most):
        size = min(most, total - start)
        yield fill_up(tree, min(most, padded_size(size)), start), size
