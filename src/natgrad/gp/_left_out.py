"""Hyperparameters that climb the log density of left-out rows, block by block.

A block is a random row and its nearest rows. One factorisation gives the density of
each of its rows given all others, in closed form.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from natgrad._runtime.programs import LONG_RUN, filter_jit
from natgrad.data._batches import Batch
from natgrad.errors import FitError
from natgrad.gp._blocks import left_out, marginals
from natgrad.gp._nearest import Nearest, metric, one_of_each
from natgrad.gp._sites import Sites, row_sites
from natgrad.gp.kernels import AbstractKernel, AbstractStationary
from natgrad.gp.likelihoods import AbstractLikelihood, Support
from natgrad.gp.likelihoods._rows import (
    expected_log_probs,
    log_predictives,
    with_columns,
)
from natgrad.gp.means import AbstractMean


BLOCK, INNER, BLOCKS = 64, 16, 16
"""Rows of a block; how many of them, the nearest to its first, are scored; and blocks
of a step. Rows at the edge of a block have neighbours on one side only."""

SPREAD = 8
"""How many times as many nearest rows are searched for a block of groups."""

TOGETHER = 5
"""Steps whose blocks are found by one search and taken in one program."""

STEPS, RATE = 300, 0.1
"""Steps of Adam, whose rate falls linearly to 0 from half-way on."""

AVERAGED = 0.25
"""The last part of the steps, over which hyperparameters are averaged."""

MOVED = 0.1
"""The rows are searched anew when a logarithm of the metric moved so far."""

LEAST = 1e-6
"""The least precision of a site, of a function with variance 1."""

LABELS = Support.LABELS, Support.GRADES, Support.SUCCESSES
"""Targets of which each says little."""

TURNS = 3
"""Natural steps on the site of a row while all others are held."""


class Hyperparameters(NamedTuple):
    """A kernel, a likelihood and a mean function."""

    kernel: AbstractKernel
    likelihood: AbstractLikelihood
    mean: AbstractMean


class Table(NamedTuple):
    """Rows on the host: inputs, targets, weights and columns with the targets."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    columns: dict[str, np.ndarray] = {}

    def take(self, rows: np.ndarray) -> "Table":
        """Some rows, in any shape."""
        return jax.tree.map(lambda column: column[rows], self)


def own_sites(likelihood: AbstractLikelihood, batch: Batch) -> Sites | None:
    """The sites of rows whose likelihood is one, times their weights; else None."""
    y, weight, columns = jax.tree.map(
        jnp.asarray, (batch.y, batch.weight, batch.columns)
    )

    def one(y: Array, columns: Any) -> Any:
        own, shift = with_columns(likelihood, jnp.zeros((), weight.dtype), columns)
        found = own.site(y)
        return found and (found[0] - found[1] * shift, found[1])

    found = jax.vmap(one)(y, columns)
    return found and Sites(weight * found[0], weight * found[1])


def natural_target(
    likelihood: AbstractLikelihood, mean: Array, var: Array, prior: Array, batch: Batch
) -> tuple[Array, Sites]:
    """E[log p(y | f)] of each row times its weight, and where a natural step leads.

    A precision that would be negative, as log p is not concave there, is `LEAST`.
    """
    raw = row_sites(likelihood, mean, var, batch, prior)
    precision = jnp.maximum(raw.precision, LEAST)
    linear = raw.linear + (precision - raw.precision) * (mean - prior)
    fit = expected_log_probs(likelihood, mean, var, batch)
    return jnp.asarray(batch.weight) * fit, Sites(linear, precision)


def local_steps(
    likelihood: AbstractLikelihood,
    others: tuple[Array, Array],
    prior: Array,
    sites: Sites,
    batch: Batch,
    turns: int = TURNS,
) -> Sites:
    """Sites after natural steps of each row, with what all others say of f held.

    `others` are the mean of f less its prior mean, and the variance. A step is taken if
    it raises E[log p(y | f)] − KL(q ‖ others) of its row; else the next is a quarter.
    """
    center, spread = others

    def reached(sites: Sites) -> tuple[Array, Sites]:
        ratio = 1 / (1 + spread * sites.precision)
        mean = ratio * (center + spread * sites.linear)
        kl = ratio + (mean - center) ** 2 / spread - 1 - jnp.log(ratio)
        kl = kl.sum(0) if kl.ndim > 1 else kl
        args = (mean + prior, ratio * spread, prior, batch)
        fit, target = natural_target(likelihood, *args)
        return fit - kl / 2, target

    def turn(carry: Any, _: None) -> tuple[Any, None]:
        sites, value, target, rate = carry
        tried = jax.tree.map(lambda a, b: a + rate * (b - a), sites, target)
        new, further = reached(tried)
        is_good = new >= value - 1e-9 * jnp.abs(value)
        keep = lambda new, old: jnp.where(is_good, new, old)
        kept = jax.tree.map(keep, (tried, new, further), (sites, value, target))
        return (*kept, jnp.where(is_good, 1.0, rate / 4)), None

    value, target = reached(sites)
    start = (sites, value, target, jnp.ones_like(value))
    return jax.lax.scan(turn, start, None, turns)[0][0]


def shrinkage(kernel: AbstractKernel) -> Array:
    """Half the squared distance of log lengthscales from the mean of their kernel."""
    is_stationary = lambda node: isinstance(node, AbstractStationary)
    total = jnp.zeros(())
    for node in jax.tree.leaves(kernel, is_leaf=is_stationary):
        if is_stationary(node) and node.log_lengthscale.ndim:
            length = node.log_lengthscale
            total += ((length - length.mean(-1, keepdims=True)) ** 2).sum() / 2
    return total


class State(NamedTuple):
    """Hyperparameters, the state of Adam, the average so far, the step and the last."""

    params: Any
    adam: Any
    average: Any
    step: Array
    steps: Array


def _optimizer(steps: Array) -> optax.GradientTransformation:
    rate = lambda step: RATE * jnp.minimum(1.0, 2 * (1 - (step + 1) / (steps + 1)))
    adam = optax.chain(
        optax.scale_by_adam(0.9, 0.98), optax.scale_by_learning_rate(rate)
    )
    return optax.apply_if_finite(adam, 10**9)


def _score(
    hyper: Hyperparameters, batch: Batch, sites: Sites, inner: int
) -> tuple[Array, Sites]:
    """The score of one block, and the sites of its inner rows.

    It is the log density of the inner rows, each left out. Left-out labels say too
    little of many lengthscales and over-fit them: theirs is the ELBO of the block, with
    the sites held.
    """
    x = jnp.asarray(batch.x)
    prior, cov = hyper.mean(x), hyper.kernel(x, x)
    own = own_sites(hyper.likelihood, batch)
    inside = lambda tree: jax.tree.map(lambda a: a[:inner], tree)
    last = lambda tree: jax.tree.map(lambda a: a[..., :inner], tree)
    weight = jnp.asarray(batch.weight)
    if own is not None:
        sites = Sites(own.linear - own.precision * prior, own.precision)
        mean, var = last(left_out(cov, sites))
        rows = inside(batch)
        density = log_predictives(hyper.likelihood, mean + prior[:inner], var, rows)
        # Padding has a weight of 0, and a density that may be anything.
        density = jnp.where(rows.weight > 0, rows.weight * density, 0)
        return density.sum() / rows.weight.sum(), last(sites)
    of_latents = _over_latents(sites, cov)
    others = last(of_latents(left_out)(cov, sites))
    held = jax.lax.stop_gradient((hyper.likelihood, others, last(prior)))
    before = jnp.broadcast_to(held[2], others[0].shape)
    rows = inside(batch)
    fresh = local_steps(held[0], held[1], before, last(sites), rows)
    if hyper.likelihood.support not in LABELS:
        mean = others[0] + last(prior)
        density = log_predictives(hyper.likelihood, mean, others[1], rows)
        density = jnp.where(rows.weight > 0, rows.weight * density, 0)
        return density.sum() / rows.weight.sum(), fresh
    mean, var, kl = of_latents(marginals)(cov, sites)
    fit = expected_log_probs(hyper.likelihood, mean + prior, var, batch)
    bound = jnp.where(weight > 0, weight * fit, 0).sum() - kl.sum()
    return bound / weight.sum(), fresh


def _over_latents(sites: Sites, cov: Array) -> Callable[..., Any]:
    """Makes a function of one latent function one of all that there are."""
    if sites.linear.ndim == 1:
        return lambda function: function
    axes = (0 if cov.ndim == 3 else None, 0)
    return lambda function: jax.vmap(function, axes)


def _loss(
    hyper: Hyperparameters, blocks: Batch, sites: Sites, strength: Array, inner: int
) -> tuple[Array, Sites]:
    """Minus the mean score of some blocks, and the sites of their inner rows."""
    axis = sites.linear.ndim - 2
    one = lambda batch, sites: _score(hyper, batch, sites, inner)
    each = jax.vmap(one, (0, axis), (0, axis))
    score, fresh = each(blocks, sites)
    return strength * shrinkage(hyper.kernel) - score.mean(), fresh


def _steps(
    static: Any, state: State, blocks: Batch, sites: Sites, strength: Array, inner: int
) -> tuple[State, tuple[Array, Sites]]:
    """Some steps, each on blocks of its own."""

    def loss(params: Any, blocks: Batch, sites: Sites) -> tuple[Array, Sites]:
        return _loss(eqx.combine(params, static), blocks, sites, strength, inner)

    def step(state: State, given: tuple[Batch, Sites]) -> tuple[State, Any]:
        (value, fresh), slope = jax.value_and_grad(loss, has_aux=True)(
            state.params, *given
        )
        adam = _optimizer(state.steps)
        updates, adam = adam.update(slope, state.adam, state.params)
        params = optax.apply_updates(state.params, updates)
        step = state.step + 1
        first = jnp.ceil((1 - AVERAGED) * state.steps)
        share = jnp.where(step > first, 1 / jnp.maximum(step - first, 1), 1.0)
        average = jax.tree.map(lambda a, b: a + share * (b - a), state.average, params)
        return State(params, adam, average, step, state.steps), (value, fresh)

    return jax.lax.scan(step, state, (blocks, sites))


_compiled_steps = filter_jit(_steps, compiler_options=LONG_RUN)


@filter_jit
def _first_state(params: Any, steps: Array) -> State:
    params = jax.tree.map(jnp.asarray, params)
    return State(params, _optimizer(steps).init(params), params, 0 * steps, steps)


class Trained(NamedTuple):
    """Hyperparameters, sites, and for each step its loss and rows."""

    hyper: Hyperparameters
    sites: Sites
    losses: np.ndarray
    rows: np.ndarray


def train(
    hyper: Hyperparameters,
    table: Table,
    sites: Sites | None = None,
    *,
    groups: np.ndarray | None = None,
    steps: int = STEPS,
    strength: float = 0.0,
    seed: int = 0,
) -> Trained:
    """Hyperparameters after some steps of Adam on the log density of left-out rows.

    `groups` are numbers; a block then has at most one row of each group, so that a row
    is left out with its group.
    """
    rows, columns = table.x.shape
    steps = TOGETHER * -(-steps // TOGETHER)  # or the rate would end below 0
    most = rows if groups is None else len(np.unique(groups))
    block = min(BLOCK, most)
    inner, size = min(INNER, block), min(BLOCKS, rows)
    random = np.random.default_rng(seed)
    params, static = eqx.partition(hyper, eqx.is_inexact_array)
    state = _first_state(params, np.asarray(float(steps)))
    nothing: Any = np.zeros(rows)
    begun = Sites(nothing, nothing) if sites is None else sites
    found: Any = jax.tree.map(np.array, begun)
    linear, precision = found
    index, scale, losses, scored = None, np.ones(columns), [], []
    for _ in range(0, steps, TOGETHER):
        now = metric(eqx.combine(state.params, static).kernel, columns)
        if index is None or np.abs(np.log(now / scale)).max() > MOVED:
            index, scale = Nearest(table.x, now), now
        seeds = random.integers(rows, size=TOGETHER * size)
        if groups is None:
            near = index.query(table.x[seeds], block, eps=0.5)
            is_real = np.ones(near.shape, bool)
        else:
            near = index.query(table.x[seeds], SPREAD * block, eps=0.5)
            near, is_real = one_of_each(near, groups, block)
        near, is_real = (a.reshape(TOGETHER, size, block) for a in (near, is_real))
        some = table.take(near)
        blocks = Batch(*some._replace(weight=some.weight * is_real))
        first = lambda a: np.moveaxis(a, -3, 0) if a.ndim > 3 else a
        here = [first(each[..., near] * is_real) for each in (linear, precision)]
        given = (static, state, blocks, Sites(*here), np.asarray(strength), inner)
        state, (values, fresh) = _compiled_steps(*given)
        at = near[..., :inner]
        last = lambda a: np.moveaxis(np.asarray(a), 0, -3) if a.ndim > 3 else a
        linear[..., at], precision[..., at] = (last(each) for each in fresh)
        losses.append(np.asarray(values))
        scored.append(at)
    losses = np.concatenate(losses)
    if not np.isfinite(losses).mean() > 0.5:
        bad = (~np.isfinite(losses)).sum()
        raise FitError(
            f"{bad} of {steps} training steps were not finite; "
            "check the rows for extreme values, or start from another kernel"
        )
    hyper = eqx.combine(state.average, static)
    return Trained(hyper, found, losses, np.concatenate(scored))
