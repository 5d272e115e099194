"""How q and the hyperparameters of a model that keeps learning follow its rows.

The sites t of rows that are gone are a Gaussian function of f at the inducing inputs of
their time, a. A model with other inducing inputs and hyperparameters sees them by
E_q[log t(a)], which is linear in the moments of q: moved, they are sites again, and
what the move loses is known (Bui, Nguyen and Turner 2017; Chang et al. 2023).
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from natgrad._runtime.programs import SHORT_RUN, filter_jit, jit
from natgrad.data._batches import Batch
from natgrad.families.gaussian import AbstractGaussian, Moments
from natgrad.gp._profile import at_best, equal_sites, total_weight, units
from natgrad.gp._sites import (
    Sites,
    condition,
    project,
    sites_at,
    sites_of,
    to_sites,
    together,
)
from natgrad.gp._sparse import (
    Projection,
    SparseGP,
    marginals,
    prior_inverse,
    projected_elbo,
    with_posterior,
)
from natgrad.gp.kernels import AbstractStationary
from natgrad.gp.likelihoods import Gaussian
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import eye_like, matvec
from natgrad.train._constants import NONE, Constants
from natgrad.train._profile import Evaluated, lbfgs_rule, minimize_distributions
from natgrad.train._rules import Rule


UPDATE_STEPS = 20
"""Natural steps on a piece if only q learns, at most; Gaussian noise needs none."""

ROUNDED = 1e-6
"""The part of a column's values that may be rounding."""


# Sites of rows that are gone


class Old(NamedTuple):
    """Sites of rows that are gone, and the inducing inputs x of their time.

    They are over L⁻¹ (f(x) − mean), or over f(x) − mean if q is not whitened.
    """

    sites: Sites
    x: Float[Array, "M D"]
    inverse: Float[Array, "*S M M"]
    mean: Float[Array, "*L M"]


def old_sites(model: SparseGP, sites: Sites, shift: Array | float = 0.0) -> Old:
    """Sites over the variables of q, with `shift` added to all targets since."""
    z = model.inducing
    mean = jnp.broadcast_to(model.mean(z), sites.linear.shape) + shift
    return Old(sites, z, prior_inverse(model), mean)


def transfer(
    model: SparseGP, old: Old, there: Projection
) -> tuple[Sites, Array, Array]:
    """Old sites as sites of a model's q, from the projection of their inputs.

    Also what E_q[log t] has besides that of these sites, and what the model's inducing
    inputs lose of it, in nats.
    """
    (linear, precision), z, inverse, mean = old
    rest = model.kernel(z, z) - there.features.mT @ there.features
    features, shift = there.over_q, jnp.broadcast_to(there.mean, mean.shape) - mean
    if model.is_whitened:
        features, shift = features @ inverse.mT, matvec(inverse, shift)
        rest = inverse @ rest @ inverse.mT
    pulled = linear - matvec(precision, shift)
    lost = (precision * jnp.broadcast_to(rest, precision.shape)).sum() / 2
    constant = ((linear + pulled) * shift).sum() / 2 - lost
    return project(features, Sites(pulled, precision)), constant, lost


def expected(q: AbstractGaussian, sites: Sites) -> Float[Array, ""]:
    """E_q[log t] of sites over the variables of q."""
    (linear, precision), mean, factor = sites, q.location(), q.factor()
    square = (factor * (precision @ factor)).sum()
    square += (mean * matvec(precision, mean)).sum()
    return (linear * mean).sum() - square / 2


class Kept(NamedTuple):
    """What old sites say of f at rows that were kept: mean + weightsᵀ (f(z) − mean).

    These rows stand for all that are gone, and have their precision.
    """

    x: Float[Array, "R D"]
    weights: Float[Array, "*S M R"]
    mean: Float[Array, "*L R"]
    precision: Float[Array, " R"]


def kept_rows(model: SparseGP, old: Old, x: Array, precision: Array) -> Kept:
    """Rows that were kept, as the model whose sites are old explains them."""
    weights = old.inverse.mT @ model.project(x, old.inverse).features
    shift = old.mean - jnp.broadcast_to(model.mean(old.x), old.mean.shape)
    mean = jnp.broadcast_to(model.mean(x), (*shift.shape[:-1], len(x)))
    return Kept(x, weights, mean + shift[..., :1], precision)


def residual(
    model: SparseGP, old: Old, kept: Kept, rows: Projection, at_old: Projection
) -> Projection:
    """f at kept rows less what old sites said of it, as a model has both."""
    (x, weights, mean, _), z = kept, old.x
    features = rows.features - at_old.features @ weights
    cross, own = model.kernel(z, x), model.kernel(z, z) @ weights
    rest = model.kernel.diag(x) + (weights * (own - 2 * cross)).sum(-2)
    shift = jnp.broadcast_to(at_old.mean, old.mean.shape) - old.mean
    gap = jnp.broadcast_to(rows.mean, mean.shape) - mean - matvec(weights.mT, shift)
    return Projection(features, rest - (features**2).sum(-2), gap, rows.inverse)


# What is done for each piece


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def worth_of(model: SparseGP, sites: Sites, rows: Batch) -> tuple[Array, Array]:
    """How precisely f is known at each inducing input and row, and what is lost now.

    Half of it, times the prior variance that inducing inputs leave there, is about what
    these inducing inputs lose, in nats.
    """
    z, precision = model.inducing, sites.precision
    inverse = prior_inverse(model)
    there = model.project(jnp.asarray(rows.x), inverse)
    if model.is_whitened:
        precision = inverse.mT @ precision @ inverse
    own = jnp.diagonal(precision, axis1=-2, axis2=-1)
    both = jnp.concatenate([own, sites_at(model, there, rows).precision], -1)
    each = lambda latents: latents.reshape(-1, latents.shape[-1]).mean(0)
    worth, rest = (each(jnp.maximum(part, 0)) for part in (both, there.rest))
    return worth, worth[len(z) :] @ rest / 2


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def transferred(
    model: SparseGP, before: SparseGP, sites: Sites, shift: Array
) -> tuple[Sites, Array]:
    """The sites of a model before, as those of a model, and what is lost, in nats."""
    old = old_sites(before, sites, shift)
    view, _, lost = transfer(model, old, model.project(old.x))
    return view, lost


@functools.partial(jit, static_argnums=0, compiler_options=SHORT_RUN)
def learned(
    complete: Constants,
    trained: SparseGP,
    sites: Sites,
    shift: Array,
    rows: Batch,
    gone: Array,
    steps: Array,
) -> tuple[Any, Array]:
    """The model after some evaluations, and minus its bound.

    The first rows are those that were kept, and `gone` is how precisely all that are
    gone know f, shared out among them.
    """
    rule, model = _rule(len(rows.x)), complete(trained)
    old = old_sites(model, sites, shift)
    kept = kept_rows(model, old, jnp.asarray(rows.x)[: len(gone)], gone)

    def step(carry: tuple[Any, ...]) -> Any:
        model, state, left = carry
        model, state, _ = rule.step(model, state, (rows, old, kept), complete)
        return model, state, left - 1

    def going(carry: tuple[Any, ...]) -> Array:
        return (carry[2] > 0) & ~carry[1].is_over

    begun = (trained, rule.init(trained), jnp.asarray(steps))
    trained, state, _ = lax.while_loop(going, step, begun)
    return trained, state.values[-1]


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def remembered(
    model: SparseGP,
    before: SparseGP,
    sites: Sites,
    shift: Array,
    rows: Batch,
    leaves: Array,
    is_new: Array,
) -> tuple[Sites, Array]:
    """The sites of all rows that are gone, and what inducing inputs lose, in nats."""
    old, inverse = old_sites(before, sites, shift), prior_inverse(model)
    view, _, lost = transfer(model, old, model.project(old.x, inverse))
    there = model.project(jnp.asarray(rows.x), inverse)
    linear, precision = sites_at(model, there, rows)
    shape, dtype = precision.shape, precision.dtype
    each = lambda rows: jnp.broadcast_to(jnp.asarray(rows, dtype), shape)
    gone = Sites(each(leaves) * linear, each(leaves) * precision)
    unseen = each(is_new) * each(jnp.maximum(there.rest, 0))
    lost += (precision * unseen).sum() / 2
    return together(view, project(there.over_q, gone)), lost


@filter_jit
def updated(model: SparseGP, batch: Batch) -> tuple[SparseGP, Array, Array]:
    """The model whose q has the sites of more rows, and whether it is finite.

    Between them, the part of the prior variance that inducing inputs leave at the rows.
    """
    q, x = model.posterior, jnp.asarray(batch.x)
    rows, prior = model.project(x), model.kernel.diag(x)
    if isinstance(model.likelihood, Gaussian):  # sites do not depend on q
        sites = project(rows.over_q, sites_at(model, rows, batch))
    else:
        sites = _found(model, rows, batch)
    q = condition(q, together(to_sites(model), sites), rows.inverse)
    weight = jnp.ones(len(x)) if batch.weight is None else jnp.asarray(batch.weight)
    weight = weight.astype(prior.dtype)
    left = (jnp.maximum(rows.rest, 0) @ weight).sum() / (prior @ weight).sum()
    return with_posterior(model, q), left, q.is_inside().all()


def _found(model: SparseGP, rows: Projection, batch: Batch) -> Sites:
    """The sites of rows, over the variables of q, by guarded natural steps.

    q is N(0, I) in the coordinates w of u = m + F w. Few rows see few directions of w,
    and the steps are taken in these alone.
    """
    q, factor = model.posterior, model.posterior.factor()
    features, basis = factor.mT @ rows.over_q, eye_like(factor)
    if features.shape[-1] < features.shape[-2]:
        basis, features = jnp.linalg.qr(features)
    there = Projection(features, rows.rest, marginals(q, rows)[0], None)
    unit = eye_like(features[..., : features.shape[-2]])
    start = Moments(jnp.zeros_like(unit[..., 0]), Sqrt(unit))
    loss = lambda w: -projected_elbo(with_posterior(model, w), there, batch)
    found = minimize_distributions(loss, start, 0.0, UPDATE_STEPS)
    precise = -2 * q.natural().second @ (factor @ basis)  # F⁻ᵀ of the basis
    linear, precision = project(precise, sites_of(found.params))
    linear += matvec(precision, q.location())
    return Sites(jnp.where(jnp.isfinite(found.value), linear, jnp.nan), precision)


@functools.lru_cache(maxsize=16)
def _rule(rows: int) -> Rule:
    """L-BFGS on the profile of all that is known of the rows so far."""

    first_kept = lambda model: equal_sites(model, rows, 0.0)
    count = lambda batch: total_weight(batch[0])
    return lbfgs_rule(_evaluate, count, first_kept, units)


def _evaluate(
    model: SparseGP, found: Sites, batch: Any, complete: Constants = NONE
) -> Evaluated:
    """The profile at a model's hyperparameters: new rows, kept rows and old sites."""
    rows, old, kept = batch

    def view(model: SparseGP) -> Any:
        whole = complete(model)
        both = whole.project(jnp.concatenate([rows.x, old.x]))
        there, at_old = _part(both, 0, len(rows.x)), _part(both, len(rows.x), None)
        first = _part(there, 0, len(kept.x))
        change = residual(whole, old, kept, first, at_old)
        return there, transfer(whole, old, at_old), change

    def loss(model: SparseGP, seen: tuple[Any, ...]) -> Array:
        whole, (there, (sites, constant, _), change) = complete(model), seen
        q = whole.posterior
        known = projected_elbo(whole, there, rows) + expected(q, sites) + constant
        # Old sites say nothing of f between their inducing inputs.
        mean, var = marginals(q, change)
        known -= ((mean**2 + var) @ kept.precision).sum() / 2
        return _misfit(whole) - known

    def start(seen: tuple[Any, ...]) -> AbstractGaussian:
        there, (sites, *_), _ = seen
        known = together(sites, project(there.over_q, found))
        return condition(model.posterior, known, there.inverse)

    count = total_weight(rows)
    model, value, slope, (there, *_) = at_best(loss, model, view, start, count)
    return Evaluated(model, value, slope, sites_at(complete(model), there, rows))


def _part(rows: Projection, begin: int, end: int | None) -> Projection:
    """Some of the rows."""
    features, rest, mean = (each[..., begin:end] for each in rows[:3])
    return Projection(features, rest, mean, rows.inverse)


def _misfit(model: SparseGP) -> Array:
    """Minus a log prior of the lengthscales: √D times the spread of the inputs.

    A lengthscale that some rows have sent to infinity would not come back, as it has no
    slope there.
    """
    z = lax.stop_gradient(model.inducing)
    spread, columns = z.std(0), z.shape[1]
    # A column that is still constant, but for rounding, has no unit.
    is_varied = spread > ROUNDED * jnp.abs(z).max(0)
    misfit = jnp.zeros((), z.dtype)
    is_stationary = lambda node: isinstance(node, AbstractStationary)
    for node in jax.tree.leaves(model.kernel, is_leaf=is_stationary):
        if is_stationary(node) and node.log_lengthscale.shape[-1:] == (columns,):
            unit = jnp.where(is_varied, spread, 1)
            far = node.log_lengthscale - jnp.log(unit) - math.log(columns) / 2
            misfit += (jnp.where(is_varied, far, 0) ** 2).sum() / 2
    return misfit
