"""Expectations under one normal distribution, or several independent ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


Numbers = Float[Array, "..."]


@functools.cache
def gauss_hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and logarithms of weights, for E[g(z)] ≈ Σ wᵢ g(zᵢ) with z ~ N(0, 1)."""
    nodes, weights = np.polynomial.hermite.hermgauss(count)
    return np.sqrt(2) * nodes, np.log(weights) - np.log(np.pi) / 2


@functools.cache
def common_draws(count: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points that fill N(0, I) evenly, and logarithms of their equal weights.

    Half of them are a Sobol sequence, shifted bit by bit at random and sent through
    Φ⁻¹, and half the mirror image of it. The count should be a power of two.
    """
    # SciPy's statistics take longer to import than JAX.
    from scipy.special import ndtri
    from scipy.stats import qmc

    cells = 2**30
    sequence = qmc.Sobol(size, scramble=False).random(count // 2)
    shift = np.random.default_rng(seed).integers(0, cells, size)
    shifted = np.round(cells * sequence).astype(np.int64) ^ shift
    half = ndtri((shifted + 0.5) / cells)
    return np.concatenate([half, -half]), np.full(count, -np.log(count))


@jax.custom_jvp
def deviation(variance: Numbers) -> Numbers:
    """The root of a variance that rounding may have made zero, or less.

    It is never below the root of the machine epsilon, where differences between nodes
    are rounding errors, and its derivative is that of the root there.
    """
    return jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).eps))


@deviation.defjvp
def _deviation_jvp(
    primals: tuple[Numbers], tangents: tuple[Numbers]
) -> tuple[Numbers, Numbers]:
    (variance,), (change,) = primals, tangents
    root = jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).eps))
    return root, change / (2 * root)


def spread(mean: Numbers, variance: Numbers, points: np.ndarray) -> Numbers:
    """Values of f ~ N(mean, variance) at points of N(0, I)."""
    if mean.ndim:
        return mean[None] + deviation(variance)[None] * jnp.asarray(points, mean.dtype)
    # As a product of matrices: its transpose gives both slopes of an expectation at
    # once, which on a CPU is several times as fast as two sums over the nodes.
    basis = jnp.asarray(np.stack([np.ones_like(points), points]), mean.dtype)
    both = jnp.stack([mean, deviation(variance)])
    return jnp.matmul(both, basis, precision="highest")
