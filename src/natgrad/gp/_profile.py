"""The profile of a sparse Gaussian process: its bound at the best q, of all rows.

q starts where the sites of the rows, found at the last hyperparameters, put it at the
new ones. Near the optimum one natural step is then enough.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Batch
from natgrad.gp import _few_rows as few_rows
from natgrad.gp._sites import Sites, condition, project, sites_at
from natgrad.gp._sparse import (
    Projection,
    SparseGP,
    projected_elbo,
    with_posterior,
    work,
)
from natgrad.gp._steps import hyperparameter_gradient
from natgrad.gp.inducing import spacing
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


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def carried_over(model: SparseGP, trained: SparseGP, batch: Batch) -> SparseGP:
    """A model with what a trained one knows of its rows, at its own inducing inputs.

    If there is no such posterior, it is left as it is.
    """
    x = jnp.asarray(batch.x)
    sites = sites_at(trained, trained.project(x), batch)
    there = model.project(x)
    q = condition(model.posterior, project(there.over_q, sites), there.inverse)
    return with_posterior(model, accept_if(q.is_inside().all(), q, model.posterior))


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


def equal_sites(model: SparseGP, rows: int, value: float) -> Sites:
    """The same number for all sites of so many rows."""
    latents = model.likelihood.latents
    shape = (rows,) if latents is None else (latents, rows)
    each = jnp.full(shape, value, model.inducing.dtype)
    return Sites(each, each)


def total_weight(batch: Batch) -> Any:
    """How much all rows count together."""
    return len(batch.x) if batch.weight is None else batch.weight.sum()


def evaluate(
    model: SparseGP,
    sites: Sites,
    batch: Batch,
    complete: Constants = NONE,
    *,
    has_prior: bool = False,
) -> Evaluated:
    """The profile at a model's hyperparameters."""
    count = total_weight(batch)

    def loss(model: SparseGP, rows: Projection) -> Array:
        whole = complete(model)
        loss = -projected_elbo(whole, rows, batch)
        if has_prior:
            loss += few_rows.misfit(whole.kernel, whole.likelihood, batch)
        return loss

    start = lambda rows: condition(
        model.posterior, project(rows.over_q, sites), rows.inverse
    )
    view = lambda model: complete(model).project(batch.x)
    model, value, slope, rows = at_best(loss, model, view, start, count)
    return Evaluated(model, value, slope, sites_at(complete(model), rows, batch))


def at_best(
    loss: Callable[[SparseGP, Any], Array],
    model: SparseGP,
    view: Callable[[SparseGP], Any],
    start: Callable[[Any], Any],
    count: Any,
) -> tuple[SparseGP, Array, Any, Any]:
    """The model with its best q, the loss there, its slope and what the loss sees.

    The loss sees `view(model)`, which does not depend on q, and q begins at the `start`
    that it gives. `count` is how much all rows count together.
    """
    seen, pull_back = jax.vjp(view, model)
    q = start(seen)
    q = accept_if(q.is_inside().all(), q, model.posterior)
    of_q = lambda q: loss(with_posterior(model, q), seen)
    best = minimize_distributions(of_q, q, NATURAL_TOLERANCE * count)
    model = with_posterior(model, best.params)
    slope = hyperparameter_gradient(loss, model, seen, pull_back)
    return model, best.value, slope, seen
