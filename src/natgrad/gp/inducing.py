"""Where the inducing inputs start: rows of the data, or centres of clusters.

Each function returns distinct rows, as many as you ask for if the data has them. The
result depends on the arguments alone.
"""

import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from natgrad._runtime.programs import filter_jit
from natgrad.errors import InputError, InputWarning, warn
from natgrad.gp._distances import squared_distance
from natgrad.gp.kernels import AbstractKernel
from natgrad.gp.kernels._base import require_kernel


__all__ = ["k_means", "greedy", "random"]

ROWS_EACH, LEAST, MOST = 20, 100, 200
"""By default one inducing input for this many rows, but at least and at most these."""

SAMPLE = 50_000
"""How many rows the centres are sought among."""

ITERATIONS = 50
"""Steps of Lloyd's algorithm; it seldom gains a percent after them."""

NOTHING = 1e-12
"""What share of the prior variance counts as explained."""

CLOSEST = 0.01
"""The least spacing, as a part of the middle one: of two equal inputs one must move."""


def k_means(x: object, num: int, seed: int = 0) -> np.ndarray:
    """The centres of `num` clusters of a uniform sample of the rows.

    Raises:
        InputError: If x is not rows by columns or not finite, or `num` is below 1.

    >>> rows = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> print(np.sort(gp.inducing.k_means(rows, 2), axis=0).round(2))
    [[0.1]
     [5.1]]
    """
    x = _checked(x, num)
    rng = np.random.default_rng(seed)
    sample = x if len(x) <= SAMPLE else x[rng.choice(len(x), SAMPLE, replace=False)]
    distinct = _distinct(sample)
    if len(distinct) <= num:
        distinct = _distinct(x)
        if len(distinct) <= num:
            return _all_of(distinct, num)
        sample = distinct[rng.permutation(len(distinct))[:SAMPLE]]
    # Digits are lost to a large mean.
    centre = sample.mean(0)
    rows = sample - centre
    centres = _lloyd(rows, _spread(rows, num, rng))
    return _filled(centres + centre, distinct, num, rng)


def _spread(rows: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++: each row is drawn in proportion to its squared distance to the others.

    Of a few draws the best is taken. SciPy's own computes all distances again at each
    draw, which is `num` times the work.
    """
    norms = np.einsum("nd,nd->n", rows, rows)
    chosen = [int(rng.integers(len(rows)))]
    tries = 2 + int(np.log(num))
    squared = _squared(rows, norms, np.asarray(chosen))[0]
    while len(chosen) < num and squared.any():
        cumulative = np.cumsum(squared)
        draws = rng.uniform(size=tries) * cumulative[-1]
        drawn = np.minimum(np.searchsorted(cumulative, draws), len(rows) - 1)
        nearest = np.minimum(_squared(rows, norms, drawn), squared[None, :])
        best = int(nearest.sum(1).argmin())
        chosen.append(int(drawn[best]))
        squared = nearest[best]
    return rows[chosen]


def _squared(rows: np.ndarray, norms: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Squared distances to some of the rows; zero where rounding could make them."""
    squared = norms[None, :] + norms[some, None] - 2 * rows[some] @ rows.T
    floor = 16 * np.finfo(rows.dtype).eps * (norms[None, :] + norms[some, None])
    return np.where(squared > floor, squared, 0)


def _lloyd(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    from scipy.cluster.vq import kmeans2  # imported late: it takes 50 ms

    for _ in range(ITERATIONS):
        with warnings.catch_warnings():
            # A cluster that is empty keeps its centre, and may be filled again.
            warnings.filterwarnings("ignore", "One of the clusters is empty")
            moved, _ = kmeans2(rows, centres, iter=1, minit="matrix")
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _filled(
    centres: np.ndarray, rows: np.ndarray, num: int, rng: np.random.Generator
) -> np.ndarray:
    """The distinct centres, and rows drawn at random for those that are missing."""
    centres = _distinct(centres)
    if len(centres) == num:
        return centres
    return _distinct(np.concatenate([centres, rng.permutation(rows)]))[:num]


def random(x: object, num: int, seed: int = 0) -> np.ndarray:
    """Rows drawn at random, each value once.

    Raises:
        InputError: If x is not rows by columns or not finite, or `num` is below 1.

    >>> rows = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> print(np.sort(gp.inducing.random(rows, 2), axis=0))
    [[0.]
     [1.]]
    """
    x = _checked(x, num)
    order = np.random.default_rng(seed).permutation(len(x))
    taken = min(num, len(x))
    while True:
        rows = _distinct(x[order[:taken]])
        if len(rows) >= num:
            return rows[:num]
        if taken == len(x):
            return _all_of(rows, num)
        taken = min(2 * taken, len(x))


def greedy(x: object, num: int, kernel: AbstractKernel, seed: int = 0) -> np.ndarray:
    """Rows that are each, when chosen, the least explained by those before.

    This is the pivoted Cholesky decomposition of k(x, x), after Burt, Rasmussen and
    van der Wilk (2020), at a cost of N num² and without the matrix. It stops when
    nothing is left to explain. With a kernel for each latent function, their mean
    counts. The seed decides between equals.

    Raises:
        InputError: If x is not rows by columns or not finite, or `num` is below 1.

    >>> rows = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> gp.inducing.greedy(rows, 2, gp.kernels.RBF(1.0)).shape
    (2, 1)
    """
    kernel, x = require_kernel(kernel), _checked(x, num)
    order = np.random.default_rng(seed).permutation(len(x))
    found = pivoted(kernel, jnp.asarray(x[order]), np.ones(len(x)), num)
    chosen = np.asarray(found.chosen)
    chosen = chosen[chosen >= 0]
    why = "{} rows of x explain the rest under this kernel"
    return _all_of(x[order[chosen]], num, why)


def _checked(x: object, num: int) -> np.ndarray:
    x = np.asarray(x)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"x has shape {list(x.shape)}; it should be rows by columns")
    if num < 1:
        raise InputError(f"num is {num}; there should be at least 1 inducing input")
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(float)
    wrong = ~np.isfinite(x)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"x has {wrong.sum()} values that are not finite, the first of them "
            f"{x[row, column]} in row {row}, column {column}; all should be finite"
        )
    return x


def _distinct(x: np.ndarray) -> np.ndarray:
    """The rows of `x`, each value at its first place."""
    first: dict[bytes, int] = {}
    # Zeros of both signs are equal, and are so in their bytes after this sum.
    for place, row in enumerate(np.ascontiguousarray(x) + 0.0):
        first.setdefault(row.tobytes(), place)
    return x[list(first.values())]


def _all_of(
    rows: np.ndarray, num: int, why: str = "x has {} distinct rows"
) -> np.ndarray:
    """The rows, with a word where they are fewer than was asked for."""
    if len(rows) < num:
        warn(
            f"asked for {num} inducing inputs, but {why.format(len(rows))}; "
            "using these",
            InputWarning,
        )
    return rows


class Pivots(NamedTuple):
    """Rows in the order in which they were chosen, −1 where nothing was left.

    `left` is what each row's variance has left in the end.
    """

    chosen: Int[Array, " num"]
    left: Float[Array, " N"]


@filter_jit
def pivoted(kernel: Any, x: Array, weight: Any, num: int) -> Pivots:
    """The rows that are each, when chosen, the least explained, times their weight."""
    left = _mean_of_latents(kernel.diag(x), 1)
    # A kernel in fewer bits cannot explain as much.
    share = max(NOTHING, 10 * float(jnp.finfo(left.dtype).eps))
    floor = share * left.max()
    weight = jnp.asarray(weight, left.dtype)

    def choose(step: Array, carry: tuple[Array, Array, Array]) -> Any:
        chosen, left, factor = carry
        worth = jnp.where(left > floor, weight * left, -jnp.inf)
        pivot = worth.argmax()
        is_left = worth[pivot] > 0
        row = _mean_of_latents(kernel(x[pivot][None, :], x), 2)[0]
        row = (row - factor[:, pivot] @ factor) / jnp.sqrt(left[pivot])
        row = jnp.where(is_left, row, 0)
        left = (left - row**2).at[pivot].set(jnp.where(is_left, 0, left[pivot]))
        chosen = chosen.at[step].set(jnp.where(is_left, pivot, -1))
        return chosen, left, factor.at[step].set(row)

    first = (jnp.full(num, -1), left, jnp.zeros((num, len(x)), left.dtype))
    chosen, left, _ = lax.fori_loop(0, num, choose, first)
    return Pivots(chosen, left)


def _mean_of_latents(values: Array, ndim: int) -> Array:
    return values.mean(0) if values.ndim > ndim else values


def spacing(z: Float[Array, "M D"]) -> Float[Array, " M"]:
    """How far each row is from the nearest other one, as a mean over the columns."""
    if len(z) < 2:
        return jnp.ones(len(z), z.dtype)
    squared = squared_distance(z, z, jnp.ones((), z.dtype)) / z.shape[1]
    squared = jnp.where(jnp.eye(len(z), dtype=bool), jnp.inf, squared)
    nearest = jnp.sqrt(squared.min(1))
    return jnp.maximum(nearest, CLOSEST * jnp.median(nearest))
