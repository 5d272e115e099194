"""The expected energy of a distribution and its slope, from a few draws.

The energy is −log p(z, data). A Gaussian gets the gradient and the Hessian of it at
each draw: by the theorems of Bonnet and Price their means are the natural gradient. The
Hessian of a conjugate model is the same everywhere, so one step solves it. Draws come
in pairs with opposite signs, whose errors in the gradient cancel to second order.

For other families the energy is fitted by a function ⟨x, T(z)⟩ of the statistics, so
that both have the same gradient on average over the draws (Salimans and Knowles 2013).
Of many draws, x is the natural gradient. If the model is conjugate the fit is exact.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, PyTree

from natgrad.families import diagonal, gamma, gaussian
from natgrad.families._implicit import AbstractImplicit
from natgrad.linalg._triangular import cholesky, solve_lower, symmetric


HESSIAN = 300
"""The most latent numbers for which Hessians are formed."""

Named = dict[str, Any]
"""A tree for each posterior."""


def is_diagonal(q: object) -> bool:
    return isinstance(q, diagonal.AbstractDiagonal)


def is_gaussian(q: Any) -> bool:
    """Whether a draw from q is a linear function of standard normal numbers."""
    return isinstance(q, gaussian.AbstractGaussian) or is_diagonal(q)


def is_fitted(q: object) -> bool:
    """Whether the energy is fitted by the statistics of q."""
    return isinstance(q, AbstractImplicit)


def is_curved(q: Any) -> bool:
    """Whether the slope at q is from Hessians."""
    return is_diagonal(q) or (is_gaussian(q) and q.location().shape[-1] <= HESSIAN)


def sampler(key: Array, q: Any, draws: int) -> Callable[[Any], Any]:
    """A function from distributions like q to draws, with the same random numbers."""
    if is_gaussian(q):
        mean = q.location()
        noise = paired_noise(key, draws, mean.shape, mean.dtype)
        return lambda q: drawn(q, noise)
    if not is_fitted(q):
        return lambda q: q.sample(key, (draws,))
    info = jnp.finfo(jax.tree.leaves(q)[0].dtype)
    # A density may be infinite at the ends, which rounding can lead to.
    least, most = info.tiny / info.eps, 1 - info.eps
    most = jnp.inf if isinstance(q, gamma.AbstractGamma) else most
    return lambda q: jnp.clip(q.sample(key, (draws,)), least, most)


def paired_noise(key: Array, draws: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal numbers and their negatives, with a second moment as expected.

    The last axis of `shape` is that of a vector. The moment is exact along each
    direction if there are enough draws, else on average over all directions.
    """
    pairs, size = -(-draws // 2), shape[-1]
    noise = jax.random.normal(key, (pairs, *shape), dtype)
    if pairs >= 2 * size:
        second = jnp.einsum("s...i,s...j->...ij", noise, noise) / pairs
        columns = jnp.moveaxis(noise, 0, -1)
        noise = jnp.moveaxis(solve_lower(cholesky(symmetric(second)), columns), -1, 0)
    else:
        total = (noise**2).sum((0, -1), keepdims=True)
        noise *= jnp.sqrt(pairs * size / total)
    return jnp.concatenate([noise, -noise])


def drawn(q: Any, noise: Array) -> Any:
    """The draws from a Gaussian that standard normal numbers lead to."""
    mean = q.location()[None]
    if is_diagonal(q):
        return mean + jnp.sqrt(q.variances())[None] * noise
    return mean + jnp.einsum("...ij,s...j->s...i", q.factor(), noise)


class Slopes(NamedTuple):
    """∂L/∂η of L = E[energy] − entropy, E[energy], the fits ⟨x, T(z)⟩ and the draws."""

    slopes: Named
    mean: Any
    fits: Named
    draws: Named


def slopes_of(
    energy: Callable[[Named], Any],
    posteriors: Named,
    samplers: Named,
    key: Array,
    step_size: Array | float,
) -> Slopes:
    """The slopes of Gaussians and of fitted families, all at the same draws.

    For a Gaussian, ∂L/∂m = E[∇energy] and ∂L/∂S = (E[∇²energy] − S⁻¹)/2. `step_size` is
    that of the step to come, which `inside` needs.
    """
    latent, pulls = {}, {}
    for name, q in posteriors.items():
        # The draws of other families, with the derivatives that a fit needs.
        path = lambda theta, name=name, q=q: samplers[name](q.at_natural(theta))
        if is_fitted(q):
            latent[name], pulls[name] = jax.vjp(path, q.natural())
        else:
            latent[name] = samplers[name](q)
    curved = {name: z for name, z in latent.items() if is_curved(posteriors[name])}
    keys = dict(zip(curved, jax.random.split(key, len(curved)), strict=True))
    rademacher = lambda name, z: jax.random.rademacher(keys[name], z.shape, z.dtype)
    signs = {name: rademacher(name, z) for name, z in curved.items()}

    def at(given: tuple[Named, Named]) -> tuple[Any, Named, Named]:
        z, signs = given
        both = lambda some: jax.value_and_grad(energy)({**z, **some})
        (value, grads), push = jax.linearize(both, {name: z[name] for name in signs})
        still = {name: jnp.zeros_like(z[name]) for name in signs}

        def hessian(name: str) -> Any:
            along = lambda change: push({**still, name: change})[1][name]
            return curvature(posteriors[name], along, signs[name])

        return value, grads, {name: hessian(name) for name in signs}

    # One draw after the other: a batch of solves in the model could deadlock.
    values, grads, hessians = lax.map(at, (latent, signs))
    slopes, fits = {}, {}
    for name, q in posteriors.items():
        if name in curved:
            first, second = grads[name].mean(0), hessians[name].mean(0)
            slopes[name] = gaussian_slope(q, first, second, 1 - 0.5 / step_size)
        elif is_fitted(q):
            pull = lambda change, name=name: pulls[name](change)[0]
            fits[name] = fitted(q, latent[name], pull, grads[name])
            slopes[name] = jax.tree.map(jnp.add, fits[name], q.natural())
    return Slopes(slopes, values.mean(), fits, latent)


def curvature(q: Any, along: Callable[[Any], Any], sign: Array) -> Any:
    """The Hessian of one draw, of each Gaussian of a batch, or its diagonal.

    `along` multiplies by the Hessian of all of the batch. Members have random signs, so
    what is between them is zero on average; in a plate it is zero anyway. If there are
    too many numbers the diagonal comes from one product in the same way.
    """
    size = sign.shape[-1]
    if size > HESSIAN:
        return sign * along(sign)
    sign = sign[..., :1]
    column = lambda unit: sign * along(sign * unit)
    units = jnp.eye(size, dtype=sign.dtype).reshape(size, *(1,) * (sign.ndim - 1), size)
    hessian = jnp.moveaxis(jax.vmap(column)(units), 0, -1)
    return jnp.diagonal(hessian) if is_diagonal(q) else hessian


def gaussian_slope(q: Any, first: Array, second: Array, least: ArrayLike) -> Any:
    """∂L/∂η at a Gaussian q, from the expected gradient and Hessian of the energy."""
    here = q.natural().second  # −S⁻¹/2
    if is_diagonal(q):
        relative = q.variances() * second
        second += (raised(relative, least) - relative) / q.variances()
        return diagonal.Statistics(first, second / 2 + here)
    second = inside(q, symmetric(second), least)
    return gaussian.Statistics(first, second / 2 + here)


def raised(relative: Array, least: ArrayLike) -> Any:
    """Curvatures relative to a precision, those below zero at least as given.

    The log density is not concave where a curvature is negative, and a step could leave
    the family. Such a precision falls to half of itself at most, and the rest of the
    step is as long as it would be.
    """
    return jnp.where(relative < 0, jnp.maximum(relative, least), relative)


def inside(q: Any, hessian: Array, least: ArrayLike) -> Any:
    """The expected Hessian with its negative curvatures raised."""
    root = q.factor()

    def change(_: None) -> Any:
        relative, axes = jnp.linalg.eigh(symmetric(root.mT @ hessian @ root))
        axes = -2 * q.natural().second @ (root @ axes)  # F⁻ᵀ U
        lift = raised(relative, least) - relative
        return hessian + (axes * lift[..., None, :]) @ axes.mT

    is_concave = jnp.isfinite(cholesky(hessian)).all()
    return lax.cond(is_concave, lambda _: hessian, change, None)


def fitted(q: Any, draws: Array, pull: Callable[[Any], Any], grads: Array) -> Any:
    """x, shaped like the statistics, for which ⟨x, T(z)⟩ moves as the energy does.

    `grads` has the gradient of the energy at each draw. As θ moves, so do the draws,
    and with them the mean of the energy and of T. x solves M x = g, one system for each
    member of a batch, where g is the derivative of the one and M that of the other.
    `pull` takes a gradient at the draws to one at θ.
    """
    theta = q.natural()
    members = q.log_normalizer(theta).ndim
    leaves, structure = jax.tree.flatten(theta)
    sizes = [math.prod(leaf.shape[members:]) for leaf in leaves]

    def flat(tree: PyTree) -> Any:
        """A vector of statistics, the last axis."""
        shape = lambda a, b: (*a.shape[: a.ndim - b.ndim + members], -1)
        pairs = zip(jax.tree.leaves(tree), leaves, strict=True)
        return jnp.concatenate([a.reshape(shape(a, b)) for a, b in pairs], -1)

    statistics, pull_statistics = jax.vjp(lambda z: flat(q.statistics(z)), draws)

    def column(unit: Array) -> Any:
        (along,) = pull_statistics(jnp.broadcast_to(unit, statistics.shape))
        return flat(pull(along))

    columns = lax.map(column, jnp.eye(sum(sizes), dtype=statistics.dtype))
    found = _solved(jnp.moveaxis(columns, 0, -1), flat(pull(grads)))
    ends = list(itertools.accumulate(sizes))[:-1]
    pairs = zip(jnp.split(found, ends, -1), leaves, strict=True)
    return jax.tree.unflatten(structure, [a.reshape(b.shape) for a, b in pairs])


def _solved(matrix: Array, right: Array) -> Any:
    """M⁻¹ g for each member of a batch, in units in which M has a diagonal of one."""
    size = right.shape[-1]
    scale = jnp.sqrt(jnp.abs(jnp.diagonal(matrix, axis1=-2, axis2=-1)))

    def one(given: tuple[Any, Any, Any]) -> Any:
        matrix, right, scale = given
        inner = matrix / (scale[:, None] * scale[None])
        return jnp.linalg.solve(inner, right / scale) / scale

    flat = (x.reshape((-1, *x.shape[right.ndim - 1 :])) for x in (matrix, right, scale))
    return lax.map(one, tuple(flat)).reshape((*right.shape[:-1], size))
