"""How q and the hyperparameters of a model that keeps learning follow its rows."""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from natgrad._runtime.programs import SHORT_RUN, filter_jit, jit
from natgrad.data._batches import Batch
from natgrad.families.gaussian import Statistics
from natgrad.gp._carried import (
    OldSites,
    at_model,
    information,
    kept_rows,
    part,
    seen,
    strayed,
    total,
)
from natgrad.gp._profile import (
    RowSites,
    equal_sites,
    row_sites,
    total_weight,
    units,
    with_added,
)
from natgrad.gp._sparse import SparseGP, marginals, projected_elbo
from natgrad.gp.kernels import AbstractStationary
from natgrad.train._constants import NONE, Constants
from natgrad.train._profile import (
    NATURAL_TOLERANCE,
    Evaluated,
    lbfgs_rule,
    minimize_distributions,
)
from natgrad.train._rules import Rule, accept_if


ROUNDED = 1e-6
"""The part of a column's values that may be rounding."""


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def worth_of(model: SparseGP, old: OldSites, piece: Batch) -> tuple[Array, Array]:
    """How much is known at each candidate, and what the inducing inputs lose now."""
    worth = information(model, old, piece)
    rest = jnp.maximum(model.project(jnp.asarray(piece.x)).rest, 0)
    rest = rest.mean(0) if rest.ndim > 1 else rest
    return worth, worth[len(model.inducing) :] @ rest / 2


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def transferred(model: SparseGP, old: OldSites) -> tuple[OldSites, Array]:
    """Old sites at a model's inducing inputs, and what they lose there, in nats."""
    view = seen(model, old)
    return at_model(model, Statistics(view.linear, view.precision)), view.lost


@functools.partial(jit, static_argnums=0, compiler_options=SHORT_RUN)
def learned(
    complete: Constants,
    trained: SparseGP,
    old: OldSites,
    rows: Batch,
    gone: Array,
    steps: Array,
) -> tuple[Any, Array]:
    """The model after some evaluations, and minus its bound.

    The first rows are those that were kept, and `gone` is how precisely all that are
    gone know f, shared out among them.
    """
    rule = _rule(len(rows.x))
    first = jnp.asarray(rows.x)[: len(gone)]
    sample = kept_rows(complete(trained), old, first, gone)

    def step(carry: tuple[Any, ...]) -> Any:
        model, state, left = carry
        model, state, _ = rule.step(model, state, (rows, old, sample), complete)
        return model, state, left - 1

    def going(carry: tuple[Any, ...]) -> Array:
        return (carry[2] > 0) & ~carry[1].is_over

    begun = (trained, rule.init(trained), jnp.asarray(steps))
    trained, state, _ = lax.while_loop(going, step, begun)
    return trained, state.values[-1]


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def remembered(
    model: SparseGP, old: OldSites, rows: Batch, leaves: Array, is_new: Array
) -> tuple[OldSites, Array]:
    """The sites of all rows that are gone, and what inducing inputs lose, in nats."""
    view, there = seen(model, old), model.project(jnp.asarray(rows.x))
    sites = row_sites(model, there, rows)
    shape, dtype = sites.precision.shape, sites.precision.dtype
    each = lambda rows: jnp.broadcast_to(jnp.asarray(rows, dtype), shape)
    gone = RowSites(each(leaves) * sites.linear, each(leaves) * sites.precision)
    unseen = each(is_new) * each(jnp.maximum(there.rest, 0))
    lost = view.lost + (sites.precision * unseen).sum() / 2
    return at_model(model, total(view, there, gone)), lost


@functools.lru_cache(maxsize=16)
def _rule(rows: int) -> Rule:
    """L-BFGS on the profile of all that is known of the rows so far."""

    first_kept = lambda model: equal_sites(model, rows, 0.0)
    count = lambda batch: total_weight(batch[0])
    return lbfgs_rule(_evaluate, count, first_kept, units)


def _evaluate(
    model: SparseGP, kept: RowSites, batch: Any, complete: Constants = NONE
) -> Evaluated:
    """The profile at a model's hyperparameters: new rows, kept rows and old sites."""
    rows, old, sample = batch

    def view(model: SparseGP) -> Any:
        whole = complete(model)
        both = whole.project(jnp.concatenate([rows.x, old.inducing]))
        there, at_old = part(both, 0, len(rows.x)), part(both, len(rows.x), None)
        first = part(there, 0, len(sample.x))
        change = strayed(whole, old, sample, first, at_old)
        return there, seen(whole, old, at_old), change

    parts, pull_back = jax.vjp(view, model)

    def loss(model: SparseGP, parts: tuple[Any, ...]) -> Array:
        whole, (there, sites, change) = complete(model), parts
        known = projected_elbo(whole, there, rows) + sites.expected(whole.posterior)
        # Old sites say nothing of f between their inducing inputs.
        mean, var = marginals(whole.posterior, change)
        known -= ((mean**2 + var) @ sample.precision).sum() / 2
        return _misfit(whole) - known

    with_q = lambda q: eqx.tree_at(lambda model: model.posterior, model, q)
    there, sites, _ = parts
    start: Any = with_added(complete(model), there, total(sites, there, kept)).posterior
    q = accept_if(start.is_inside().all(), start, model.posterior)
    tolerance = NATURAL_TOLERANCE * total_weight(rows)
    best = minimize_distributions(lambda q: loss(with_q(q), parts), q, tolerance)
    model = with_q(best.params)
    direct, slopes = jax.grad(loss, argnums=(0, 1))(model, parts)
    slope = jax.tree.map(jnp.add, direct, pull_back(slopes)[0])
    found = row_sites(complete(model), there, rows)
    return Evaluated(model, best.value, slope, found)


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
