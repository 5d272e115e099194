"""What a prediction would be after more observations, at the cost of those alone.

The rows that are added see q only through f at them, a Gaussian of as many dimensions
as there are rows. Natural steps of size 1 on that Gaussian find what each row adds, and
a change of low rank brings it to all other predictions.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from natgrad._runtime.programs import filter_jit
from natgrad.data._batches import Batch
from natgrad.families.gaussian import Statistics
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.linalg._triangular import matvec, symmetric


STEPS = 40
"""Natural steps at most; with Gaussian noise the first is the last."""


class Added(NamedTuple):
    """What each row adds to q, for each latent function: exp(l f − p f²/2)."""

    linear: Float[Array, "L B"]
    precision: Float[Array, "L B"]


class Rows(NamedTuple):
    """f at some rows, minus the mean function: its mean and covariance under q.

    `rest` is the variance that the inducing inputs do not explain, and `mean` the mean
    function.
    """

    centre: Float[Array, "L B"]
    cov: Float[Array, "L B B"]
    rest: Float[Array, "L B"]
    mean: Float[Array, "L B"]

    def after(self, added: Added) -> tuple[Array, Array, Array]:
        """The mean and the variances of f, and the KL divergence from before."""
        change, solved = _change(self, added)
        centre = self.centre + matvec(self.cov, change)
        var = jnp.diagonal(self.cov @ solved, axis1=-2, axis2=-1)
        # Of the ratio of the covariances, T = (I + P C)⁻¹.
        sign, log_det = jnp.linalg.slogdet(solved)
        trace = jnp.trace(solved, axis1=-2, axis2=-1) - self.centre.shape[-1]
        square = (change * matvec(self.cov, change)).sum(-1)
        kl = (trace + square - jnp.where(sign > 0, log_det, jnp.nan)).sum() / 2
        return centre, var, kl


def _change(rows: Rows, added: Added) -> tuple[Array, Array]:
    """C⁻¹ times the change of the mean, and (I + P C)⁻¹."""
    size = rows.centre.shape[-1]
    inner = jnp.eye(size, dtype=rows.cov.dtype) + added.precision[..., None] * rows.cov
    solved = jnp.linalg.inv(inner)
    return matvec(solved, added.linear - added.precision * rows.centre), solved


def added(model: Any, rows: Rows, batch: Batch) -> Added:
    """What some rows add, by natural steps of size 1, or less where that is too far."""
    is_single = model.likelihood.latents is None

    def fit(centre: Array, var: Array) -> Array:
        mean, var = centre + rows.mean, var + rows.rest
        if is_single:
            mean, var = mean[0], var[0]
        return expected_log_probs(model.likelihood, mean, var, batch).sum()

    def bound(one: Added) -> Array:
        centre, var, kl = rows.after(one)
        return fit(centre, var) - kl

    def step(state: tuple[Added, Array, Array], _: None) -> tuple[Any, None]:
        here, value, rate = state
        centre, var = rows.after(here)[:2]
        by_mean, by_var = jax.grad(fit, argnums=(0, 1))(centre, var)
        there = Added(by_mean - 2 * by_var * centre, -2 * by_var)
        moved = jax.tree.map(lambda a, b: a + rate * (b - a), here, there)
        reached = bound(moved)
        # Rounding of the bound itself is no fall.
        is_good = reached >= value - 1e-12 * jnp.abs(value)
        keep = lambda new, old: jnp.where(is_good, new, old)
        rate = jnp.where(is_good, jnp.minimum(1.0, 2 * rate), rate / 4)
        return (jax.tree.map(keep, moved, here), keep(reached, value), rate), None

    nothing = Added(jnp.zeros_like(rows.centre), jnp.zeros_like(rows.centre))
    start = (nothing, bound(nothing), jnp.ones((), rows.centre.dtype))
    return lax.scan(step, start, None, STEPS)[0][0]


@filter_jit
def given(predictor: Any, batch: Batch) -> Any:
    """A predictor that has seen more rows."""
    model = predictor.model
    x = jnp.asarray(batch.x, predictor.weights.dtype)
    cross = model.kernel(model.inducing, x)
    spread = predictor.spreading @ cross  # [L, M, B]
    known = ((predictor.whitening @ cross) ** 2).sum(-2)
    shape = (*predictor.weights.shape[:-1], len(x))
    each = lambda a: jnp.broadcast_to(a, shape).reshape(-1, len(x))
    single = lambda a: a.reshape(-1, *a.shape[-2:])
    centre = (predictor.weights[..., None, :] @ cross)[..., 0, :]
    flat = single(spread)
    rows = Rows(
        each(centre),
        symmetric(flat.mT @ flat),
        each(jnp.maximum(model.kernel.diag(x) - known, 0)),
        each(model.mean(x)),
    )
    found = added(model, rows, batch)
    change, solved = _change(rows, found)
    # S′ = S − S k G kᵀ S, and its root is that of I − b G bᵀ times the old one.
    inner = symmetric(solved * found.precision[..., None, :])
    values, vectors = jnp.linalg.eigh(rows.cov)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    least = roots.max(-1, keepdims=True) * jnp.finfo(roots.dtype).eps
    basis = flat @ vectors / jnp.maximum(roots, least)[..., None, :]
    turned = roots[..., None] * (vectors.mT @ inner @ vectors) * roots[..., None, :]
    parts, axes = jnp.linalg.eigh(symmetric(turned))
    basis = basis @ axes
    shrink = 1 - jnp.sqrt(jnp.maximum(1 - parts, 0))
    old = single(predictor.spreading)
    spreading = old - (basis * shrink[..., None, :]) @ (basis.mT @ old)
    weights = predictor.weights.reshape(-1, predictor.weights.shape[-1])
    weights = weights + matvec(old.mT, matvec(flat, change))
    fields = lambda tree: (tree.weights, tree.spreading, tree.model.posterior)
    posterior = _posterior(predictor, cross, found)
    values = (
        weights.reshape(predictor.weights.shape),
        spreading.reshape(predictor.spreading.shape),
        posterior,
    )
    return eqx.tree_at(fields, predictor, values)


def _posterior(predictor: Any, cross: Array, found: Added) -> Any:
    """q itself after the rows, for draws; a compiled program without draws skips it."""
    model, q = predictor.model, predictor.model.posterior
    features = predictor.whitening @ cross
    if not model.is_whitened:
        features = predictor.whitening.mT @ features
    theta = q.natural()
    shape = (*predictor.weights.shape[:-1], cross.shape[-1])
    linear, precision = (each.reshape(shape) for each in found)
    first = theta.first + (features @ linear[..., None])[..., 0]
    second = (features * precision[..., None, :]) @ features.mT
    return q.at_natural(Statistics(first, theta.second - second / 2))
