"""The nearest rows in a learned metric, found on the host."""

import jax
import numpy as np
from scipy.spatial import KDTree

from natgrad.gp.kernels import AbstractKernel, AbstractStationary


BRUTE = 2500
"""A table with up to so many rows for each input is searched by brute force."""

DISTANCES = 2**22
"""How many distances brute force holds at a time."""


def metric(kernel: AbstractKernel, columns: int) -> np.ndarray:
    """What each input is multiplied by: 1/ℓ, averaged over kernels by variance."""
    is_stationary = lambda node: isinstance(node, AbstractStationary)
    total, weights = np.zeros(columns), 0.0
    for node in jax.tree.leaves(kernel, is_leaf=is_stationary):
        # A kernel on some of the inputs has lengthscales for those alone.
        if is_stationary(node) and node.log_lengthscale.shape[-1:] in ((), (columns,)):
            variance = float(np.mean(np.exp(np.asarray(node.log_variance))))
            inverse = np.exp(-2 * np.asarray(node.log_lengthscale, float))
            total, weights = total + variance * inverse, weights + variance
    return np.sqrt(total / weights) if weights else np.ones(columns)


class Nearest:
    """Finds the nearest of some rows: by a KD tree, or by brute force if few."""

    def __init__(self, x: np.ndarray, scale: np.ndarray):
        self.scale, self.x = scale, np.ascontiguousarray(x * scale)
        self.tree = None
        if len(x) > BRUTE * x.shape[1]:
            options = {"balanced_tree": False, "compact_nodes": False}
            self.tree = KDTree(self.x, leafsize=32, **options)
        else:
            self.single = self.x.astype(np.float32)
            self.squares = (self.single**2).sum(1)

    def query(self, x: np.ndarray, k: int, eps: float = 0.0) -> np.ndarray:
        """The k nearest rows of each row of x, nearest first, [Q, k]."""
        k = min(k, len(self.x))
        if self.tree is not None:
            found = self.tree.query(x * self.scale, k=k, eps=eps)[1]
            return np.asarray(found).reshape(len(x), k)
        chunk = max(1, DISTANCES // len(self.x))
        found = np.empty((len(x), k), int)
        for start in range(0, len(x), chunk):
            at = (x[start : start + chunk] * self.scale).astype(np.float32)
            squared = self.squares[None] - 2 * (at @ self.single.T)
            near = np.argpartition(squared, k - 1, axis=1)[:, :k]
            distance = np.take_along_axis(squared, near, 1)
            order = np.argsort(distance, axis=1, kind="stable")
            found[start : start + chunk] = np.take_along_axis(near, order, 1)
        return found

    def others(
        self, rows: np.ndarray, k: int, groups: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest to some of its rows, without these or their groups.

        It also says which are real, as there may be fewer.
        """
        groups = np.arange(len(self.x)) if groups is None else groups
        found = np.zeros((len(rows), k), int)
        is_real = np.zeros((len(rows), k), bool)
        left, asked = np.arange(len(rows)), k + 1
        while len(left):
            near = self.query(self.x[rows[left]] / self._unit, asked)
            is_other = groups[near] != groups[rows[left], None]
            order = np.argsort(~is_other, axis=1, kind="stable")[:, :k]
            real = np.take_along_axis(is_other, order, 1)
            size = order.shape[1]
            found[left, :size] = np.take_along_axis(near, order, 1)
            is_real[left, :size] = real
            is_whole = asked >= len(self.x)
            is_short = (size < k) | ~real.all(1)
            left, asked = left[is_short & (not is_whole)], 4 * asked
        return found, is_real

    @property
    def _unit(self) -> np.ndarray:
        return np.where(self.scale > 0, self.scale, 1)


def one_of_each(
    near: np.ndarray, groups: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each group among the nearest, k at most, and which are real."""
    found, is_real = np.zeros((len(near), k), int), np.zeros((len(near), k), bool)
    for place, rows in enumerate(near):
        first = np.sort(np.unique(groups[rows], return_index=True)[1])[:k]
        found[place, : len(first)], is_real[place, : len(first)] = rows[first], True
    return found, is_real


def cut_into_leaves(x: np.ndarray, size: int) -> np.ndarray:
    """Rows cut into leaves of neighbours, [leaves, size]; −1 fills the last places.

    Each cut is across the widest input, so that leaves have equally many rows.
    """
    number = -(-len(x) // size)
    found = np.full((number, size), -1)
    stack = [(np.arange(len(x)), 0, number)]
    while stack:
        rows, first, number = stack.pop()
        if number == 1:
            found[first, : len(rows)] = rows
            continue
        some = x[rows]
        widest = int(np.argmax(some.max(0) - some.min(0)))
        half = number // 2
        cut = len(rows) * half // number
        order = np.argpartition(some[:, widest], cut)
        stack.append((rows[order[:cut]], first, half))
        stack.append((rows[order[cut:]], first + half, number - half))
    return found
