"""The expected energy of a distribution and its slope, from a few draws.

The energy is −log p(z, data). A Gaussian gets the gradient and the Hessian of it at
each draw: by the theorems of Bonnet and Price their means are the natural gradient. The
Hessian of a conjugate model is the same everywhere, so one step solves it. Draws come
in pairs with opposite signs, whose errors in the gradient cancel to second order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from natgrad.families import diagonal, gaussian
from natgrad.linalg._triangular import cholesky, solve_lower, symmetric


HESSIAN = 300
"""The most latent numbers for which Hessians are formed."""


def is_diagonal(q: Any) -> bool:
    return isinstance(q, diagonal.AbstractDiagonal)


def is_gaussian(q: Any) -> bool:
    """Whether a draw from q is a linear function of standard normal numbers."""
    return isinstance(q, gaussian.AbstractGaussian) or is_diagonal(q)


def has_slope(q: Any) -> bool:
    """Whether `slope_of` knows q: else its gradient is that of `sampler`."""
    return is_diagonal(q) or (is_gaussian(q) and q.location().shape[-1] <= HESSIAN)


def sampler(key: Any, q: Any, draws: int) -> Callable[[Any], Any]:
    """A function from distributions like q to draws, with the same random numbers."""
    if not is_gaussian(q):
        return lambda q: q.sample(key, (draws,))
    mean = q.location()
    noise = paired_noise(key, draws, mean.shape[-1], mean.dtype)
    return lambda q: drawn(q, noise)


def paired_noise(key: Any, draws: int, size: int, dtype: Any) -> Any:
    """Standard normal numbers and their negatives, with a second moment as expected.

    It is exact along each direction if there are enough draws, else on average over all
    directions.
    """
    pairs = -(-draws // 2)
    noise = jax.random.normal(key, (pairs, size), dtype)
    if pairs >= 2 * size:
        root = cholesky(symmetric(noise.T @ noise / pairs))
        noise = solve_lower(root, noise.T).T
    else:
        noise *= jnp.sqrt(pairs * size / (noise**2).sum())
    return jnp.concatenate([noise, -noise])


def drawn(q: Any, noise: Any) -> Any:
    """The draws from a Gaussian that standard normal numbers lead to."""
    mean = q.location()[None]
    if is_diagonal(q):
        return mean + jnp.sqrt(q.variances())[None] * noise
    return mean + noise @ q.factor().mT


def slope_of(
    energy: Callable[[Any, Any], Any],
    q: Any,
    draws: Any,
    others: Any,
    key: Any,
    step_size: Any,
) -> tuple[Any, Any]:
    """E[energy], and ∂L/∂η of L = E[energy] − entropy, at a Gaussian q.

    ∂L/∂m = E[∇energy] and ∂L/∂S = (E[∇²energy] − S⁻¹)/2. `others` has an entry for
    each draw, which is the second argument of the energy. If there are too many latent
    numbers, the diagonal of a Hessian is estimated from one product with random signs.
    `step_size` is that of the step to come, which `inside` needs.
    """
    size = draws.shape[-1]
    signs = jax.random.rademacher(key, draws.shape, draws.dtype)

    def at(given: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        z, other, sign = given
        both = jax.value_and_grad(lambda z: energy(z, other))
        (value, grad), push = jax.linearize(both, z)
        curvature = lambda along: push(along)[1]
        if size > HESSIAN:
            return value, grad, sign * curvature(sign)
        hessian = jax.vmap(curvature)(jnp.eye(size, dtype=z.dtype))
        return value, grad, jnp.diagonal(hessian) if is_diagonal(q) else hessian

    # One draw after the other: a batch of solves in the model could deadlock.
    values, grads, hessians = lax.map(at, (draws, others, signs))
    first, second = grads.mean(0), hessians.mean(0)
    here = q.natural().second  # −S⁻¹/2
    least = 1 - 0.5 / step_size
    if is_diagonal(q):
        relative = q.variances() * second
        second += (raised(relative, least) - relative) / q.variances()
        return values.mean(), diagonal.Statistics(first, second / 2 + here)
    second = inside(q, symmetric(second), least)
    return values.mean(), gaussian.Statistics(first, second / 2 + here)


def raised(relative: Any, least: Any) -> Any:
    """Curvatures relative to a precision, those below zero at least as given.

    The log density is not concave where a curvature is negative, and a step could leave
    the family. Such a precision falls to half of itself at most, and the rest of the
    step is as long as it would be.
    """
    return jnp.where(relative < 0, jnp.maximum(relative, least), relative)


def inside(q: Any, hessian: Any, least: Any) -> Any:
    """The expected Hessian with its negative curvatures raised."""
    root = q.factor()

    def change(_: None) -> Any:
        relative, axes = jnp.linalg.eigh(symmetric(root.mT @ hessian @ root))
        axes = -2 * q.natural().second @ (root @ axes)  # F⁻ᵀ U
        lift = raised(relative, least) - relative
        return hessian + (axes * lift[None]) @ axes.mT

    is_concave = jnp.isfinite(cholesky(hessian)).all()
    return lax.cond(is_concave, lambda _: hessian, change, None)
