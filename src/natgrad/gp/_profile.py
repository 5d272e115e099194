"""The profile of a sparse Gaussian process: its bound at the best q, of all rows.

q starts where the sites of the rows, found at the last hyperparameters, put it at the
new ones. Near the optimum one natural step is then enough.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Batch
from natgrad.families.gaussian import Statistics
from natgrad.gp import _few_rows as few_rows
from natgrad.gp._sparse import Projection, SparseGP, marginals, projected_elbo, work
from natgrad.gp._steps import hyperparameter_gradient
from natgrad.gp.inducing import spacing
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.train._constants import NONE, Constants
from natgrad.train._profile import (
    NATURAL_TOLERANCE,
    TOLERANCE,
    Evaluated,
    lbfgs_rule,
    minimize_distributions,
)
from natgrad.train._rules import Rule, accept_if


MANY, MANY_TOLERANCE = 4000, 0.003
"""A table with more rows than the first needs tenths of a second for an evaluation; its
run ends when ten steps together gain fewer nats per row than the second."""


BRIEF = 1e6
"""If an evaluation takes fewer products, compiling takes longer than the run."""


class RowSites(NamedTuple):
    """What each row adds to the prior: exp(linear · f − precision · f²/2)."""

    linear: Float[Array, "*L N"]
    precision: Float[Array, "*L N"]


def row_sites(model: SparseGP, rows: Projection, batch: Batch) -> RowSites:
    """The sites to which a natural step of size 1 would go."""
    mean, var = marginals(model.posterior, rows)
    weight = jnp.ones(len(batch.x)) if batch.weight is None else batch.weight

    def total(mean: Array, var: Array) -> Array:
        fit = expected_log_probs(model.likelihood, mean, var, batch)
        return jnp.asarray(weight, fit.dtype) @ fit

    by_mean, by_var = jax.grad(total, argnums=(0, 1))(mean, var)
    precision = -2 * by_var
    centred = mean - jnp.broadcast_to(rows.mean, mean.shape)
    return RowSites(by_mean + precision * centred, precision)


def added(rows: Projection, sites: RowSites) -> Statistics:
    """What the sites of some rows add to the prior: λ and Λ."""
    features = over_q(rows)
    shape = (*sites.precision.shape[:-1], *features.shape[-2:])
    scaled = jnp.broadcast_to(features, shape) * sites.precision[..., None, :]
    linear = (features @ sites.linear[..., None])[..., 0]
    return Statistics(linear, scaled @ features.mT)


def over_q(rows: Projection) -> Array:
    """Features that combine the values which q is a distribution of."""
    if rows.inverse is None:
        return rows.features
    return rows.inverse.mT @ rows.features


def with_added(model: SparseGP, rows: Projection, added: Statistics) -> SparseGP:
    """The model with the posterior that its prior and what was added make."""
    linear, precision = added
    own = jnp.eye(precision.shape[-1], dtype=precision.dtype)
    if rows.inverse is not None:
        own = rows.inverse.mT @ rows.inverse
    precision += jnp.broadcast_to(own, precision.shape)
    posterior = model.posterior.at_natural(Statistics(linear, -precision / 2))
    return eqx.tree_at(lambda model: model.posterior, model, posterior)


def from_sites(model: SparseGP, rows: Projection, sites: RowSites) -> SparseGP:
    """The model with the posterior that its prior and the sites of some rows make."""
    return with_added(model, rows, added(rows, sites))


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def carried_over(model: SparseGP, trained: SparseGP, batch: Batch) -> SparseGP:
    """A model with what a trained one knows of its rows, at its own inducing inputs.

    If there is no such posterior, it is left as it is.
    """
    x = jnp.asarray(batch.x)
    sites = row_sites(trained, trained.project(x), batch)
    there = from_sites(model, model.project(x), sites)
    return accept_if(there.posterior.is_inside().all(), there, model)


def whole_rule(model: SparseGP, rows: int, *, has_prior: bool = False) -> Rule:
    """The rule for training a model on all rows of a table at every step."""
    is_brief = work(model, rows, len(model.inducing)) <= BRIEF
    return profile_rule(rows, is_brief=is_brief, has_prior=has_prior)


@functools.lru_cache(maxsize=64)
def profile_rule(rows: int, *, is_brief: bool = False, has_prior: bool = False) -> Rule:
    """L-BFGS on the hyperparameters, with q at its best; a batch has all `rows`.

    With `has_prior`, hyperparameters have that of `few_rows`.
    """

    # Sites that are unknown: the first evaluation begins at the q given.
    first_kept = lambda model: equal_sites(model, rows, jnp.nan)
    tolerance = TOLERANCE if rows <= MANY else MANY_TOLERANCE
    evaluated = functools.partial(evaluate, has_prior=has_prior)
    rule = lbfgs_rule(evaluated, total_weight, first_kept, units, tolerance)
    return rule._replace(is_brief=is_brief)


def units(model: SparseGP) -> Any:
    """The lengths in which the parameters of a model are measured: 1 but for Z.

    Inducing inputs are measured in units of their spacing: a run is then the same
    whatever unit the inputs have.
    """
    ones, z = jax.tree.map(jnp.ones_like, model), model.inducing
    lengths = jnp.broadcast_to(spacing(z)[:, None], z.shape)
    return eqx.tree_at(lambda model: model.inducing, ones, lengths)


def equal_sites(model: SparseGP, rows: int, value: float) -> RowSites:
    """The same number for all sites of so many rows."""
    latents = model.likelihood.latents
    shape = (rows,) if latents is None else (latents, rows)
    each = jnp.full(shape, value, model.inducing.dtype)
    return RowSites(each, each)


def total_weight(batch: Batch) -> Any:
    """How much all rows count together."""
    return len(batch.x) if batch.weight is None else batch.weight.sum()


def evaluate(
    model: SparseGP,
    sites: RowSites,
    batch: Batch,
    complete: Constants = NONE,
    *,
    has_prior: bool = False,
) -> Evaluated:
    """The profile at a model's hyperparameters."""
    rows, pull_back = jax.vjp(lambda model: complete(model).project(batch.x), model)

    def loss(model: SparseGP, rows: Projection) -> Array:
        whole = complete(model)
        loss = -projected_elbo(whole, rows, batch)
        if has_prior:
            loss += few_rows.misfit(whole.kernel, whole.likelihood, batch)
        return loss

    with_q = lambda q: eqx.tree_at(lambda model: model.posterior, model, q)
    start: Any = from_sites(model, rows, sites).posterior
    q = accept_if(start.is_inside().all(), start, model.posterior)
    tolerance = NATURAL_TOLERANCE * total_weight(batch)
    best = minimize_distributions(lambda q: loss(with_q(q), rows), q, tolerance)
    model = with_q(best.params)
    slope = hyperparameter_gradient(loss, model, rows, pull_back)
    sites = row_sites(complete(model), rows, batch)
    return Evaluated(model, best.value, slope, sites)
