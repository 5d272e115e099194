"""Exact Gaussian processes, for few rows with Gaussian noise.

They maximise the log marginal likelihood itself instead of a lower bound. If all rows
are inducing inputs and q is the exact posterior, the ELBO equals it.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from natgrad._linear_map import tangent_by
from natgrad._normal import LOG_ROOT_TAU
from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Arrays, Batch, blocks
from natgrad.gp import _few_rows as few_rows
from natgrad.gp._parameters import Numbers
from natgrad.gp._profile import total_weight
from natgrad.gp._projection import Factor, factor_of, factorized, with_jitter
from natgrad.gp._sites import Sites, condition, project, together
from natgrad.gp._sparse import SparseGP, prior_inverse, with_posterior
from natgrad.gp.kernels import AbstractKernel
from natgrad.gp.likelihoods import Gaussian
from natgrad.gp.means import AbstractMean
from natgrad.linalg._triangular import (
    Matrix,
    Vector,
    eye_like,
    lower_of_product,
    mirrored,
)
from natgrad.train._constants import NONE, Constants
from natgrad.train._loop import Fitted, run, with_fallback
from natgrad.train._options import Options
from natgrad.train._profile import Evaluated, lbfgs_rule
from natgrad.train._rules import Rule
from natgrad.train._signals import INTERRUPTED


__all__ = [
    "fit",
    "log_marginal_likelihood",
    "posterior",
    "inducing_inputs",
    "Hyperparameters",
]

MOST_ROWS = 1000
"""A step costs the cube of their number: some tenths of a second at this limit."""

STEPS = 200
"""The most evaluations by default; few runs need them."""

WINDOW = 5
"""A run ends when so many accepted steps together gain too little. Fewer than for a
bound: there is no q to follow, and each step is expensive."""

LAP = 8
"""Evaluations from each initial point before the best is chosen."""

BLOCK = 2048
"""How many rows are projected at a time, to bound the memory."""


class Hyperparameters(NamedTuple):
    """A kernel, a Gaussian likelihood and a mean: a model without q.

    >>> from natgrad.gp import exact
    >>> hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> print(f"{hyper.likelihood.variance:.2f}")
    0.01
    """

    kernel: AbstractKernel
    likelihood: Gaussian
    mean: AbstractMean


# The log marginal likelihood


def log_marginal_likelihood(hyper: Hyperparameters, batch: Batch) -> Float[Array, ""]:
    """log p(y) in nats, of all rows; they count by their weights, as in the ELBO.

    >>> from natgrad.gp import exact
    >>> hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> value = exact.log_marginal_likelihood(hyper, natgrad.data.Batch(x, y))
    >>> print(f"{value:.1f}")
    10.4
    """
    x, scale = jnp.asarray(batch.x), _scale(hyper, batch)
    # Every eigenvalue is at least 1, and a row of weight 0 is one of the identity.
    scaled = jnp.outer(scale, scale) * hyper.kernel(x, x)
    residual = scale * (batch.y - hyper.mean(x))
    noise = LOG_ROOT_TAU + hyper.likelihood.log_variance / 2
    return (
        _log_density(scaled + eye_like(scaled), residual) - total_weight(batch) * noise
    )


def _scale(hyper: Hyperparameters, batch: Batch) -> Vector:
    """The root of the precision of each row's noise."""
    count = jnp.ones(len(batch.x)) if batch.weight is None else batch.weight
    return jnp.exp(-hyper.likelihood.log_variance / 2) * jnp.sqrt(count)


@jax.custom_jvp
def _log_density(covariance: Matrix, residual: Vector) -> Float[Array, ""]:
    """−½ rᵀ C⁻¹ r − ½ log |C|, whose slope at C is ½ (C⁻¹ r rᵀ C⁻¹ − C⁻¹)."""
    return _from_root(factorized(covariance), residual)[0]


def _from_root(factor: Factor, residual: Vector) -> tuple[Float[Array, ""], Vector]:
    root = factor.inverse @ residual
    return jnp.log(jnp.diagonal(factor.inverse)).sum() - root @ root / 2, root


@_log_density.defjvp
def _(primals, tangents):
    covariance, residual = primals
    factor = factor_of(covariance)
    value, root = _from_root(factor, residual)
    kept = (*factor, root)
    return value, tangent_by(_density_tangent, _density_slopes, kept, tangents)


def _density_tangent(
    kept: tuple[Array, Array, Array], changes: tuple[Matrix, Vector]
) -> Float[Array, ""]:
    (inverse, jitter, root), (of_covariance, of_residual) = kept, changes
    solution = root @ inverse
    change = with_jitter(of_covariance, jitter)
    trace = ((inverse @ change) * inverse).sum()
    return (solution @ change @ solution - trace) / 2 - solution @ of_residual


def _density_slopes(
    kept: tuple[Array, Array, Array], slope: Float[Array, ""]
) -> tuple[Matrix, Vector]:
    inverse, jitter, root = kept
    solution = root @ inverse
    whole = mirrored(lower_of_product(inverse, inverse))
    at = jnp.outer(solution, solution) - whole
    return slope * with_jitter(at, jitter) / 2, -slope * solution


# The best q, in closed form


@filter_jit
def posterior(hyper: Hyperparameters, inducing: Numbers, batch: Batch) -> SparseGP:
    """A model with the q of highest ELBO: the result of a natural step of size 1.

    In whitened coordinates its precision is I + A W Aᵀ / σ², with W the weights.

    >>> from natgrad.gp import exact
    >>> hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> batch = natgrad.data.Batch(x, y)
    >>> solved = exact.posterior(hyper, x, batch)
    >>> gap = gp.elbo(solved, batch) - exact.log_marginal_likelihood(hyper, batch)
    >>> bool(abs(gap) < 1e-3)
    True
    """
    model = at_prior(hyper, inducing)
    unit = unit_sites(model, batch, prior_inverse(model))
    return solved(hyper, inducing, unit)


def at_prior(hyper: Hyperparameters, inducing: Numbers) -> SparseGP:
    """A model whose q is its prior."""
    return SparseGP(hyper.kernel, hyper.likelihood, inducing, mean=hyper.mean)


def unit_sites(model: SparseGP, batch: Batch, inverse: Matrix) -> Sites:
    """What rows add to q if the variance of the noise is 1; `inverse` is L⁻¹.

    Divided by another variance, it is what they add then. So the noise can change
    without another pass, and parts of the rows can be added to others.
    """

    def add(sums: Sites, rows: Batch) -> tuple[Sites, None]:
        x, y, weight = (jnp.asarray(each, inverse.dtype) for each in rows[:3])
        there = model.project(x, inverse)
        sites = Sites(weight * (y - there.mean), weight)
        return together(sums, project(there.features, sites)), None

    empty = Sites(jnp.zeros_like(inverse[0]), jnp.zeros_like(inverse))
    return lax.scan(add, empty, blocks(batch, BLOCK))[0]


def solved(hyper: Hyperparameters, inducing: Numbers, unit: Sites) -> SparseGP:
    """The model with the best q, from what rows add if the variance is 1."""
    model = at_prior(hyper, inducing)
    sites = jax.tree.map(lambda each: each / hyper.likelihood.variance, unit)
    return with_posterior(model, condition(model.posterior, sites))


# Only `fit` calls this: jax refuses compiler options inside another program.
solve = filter_jit(lambda *given: posterior(*given), compiler_options=SHORT_RUN)
"""As `posterior`, compiled."""


def inducing_inputs(x: object) -> np.ndarray:
    """All distinct rows, plus points between them, so that few sizes are compiled.

    If every row is an inducing input, further inducing inputs do not change the
    posterior. Each lies halfway between two neighbours in sorted order, so it is not a
    row itself. The widest gaps get one first.

    >>> from natgrad.gp import exact
    >>> len(x), len(exact.inducing_inputs(x))
    (50, 56)
    """
    rows = np.unique(np.asarray(x) + 0.0, axis=0)
    size = 16
    while size < len(rows):
        size = 8 * math.ceil(size * 5 / 4 / 8)
    gaps = np.linalg.norm(np.diff(rows, axis=0), axis=1)
    widest = np.sort(np.argsort(-gaps, kind="stable")[: size - len(rows)])
    return np.concatenate([rows, (rows[widest] + rows[widest + 1]) / 2])


# Training


def fit(
    initial: Sequence[Hyperparameters],
    inducing: Numbers,
    batch: Batch,
    *,
    has_prior: bool = False,
    **options: Unpack[Options],
) -> Fitted:
    """Maximises the log marginal likelihood by L-BFGS, from the best of several starts.

    natgrad takes a few evaluations from each of `initial` and continues from the
    highest. `options` are those of `natgrad.train.Options`, with at most 200 `steps` by
    default. With `has_prior` the hyperparameters have the prior that the estimators use
    for tables with few rows.

    >>> from natgrad.gp import exact
    >>> hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> batch = natgrad.data.Batch(x, y)
    >>> fitted = exact.fit([hyper], exact.inducing_inputs(x), batch, progress=False)
    >>> print(f"{fitted.params.likelihood.variance ** 0.5:.1f}")  # of the noise
    0.1
    """
    fitted = learn(initial, batch, few_rows.misfit if has_prior else None, **options)
    model = solve(fitted.params, np.asarray(inducing), batch)
    return Fitted(model, fitted.history)


def learn(
    initial: Sequence[Hyperparameters],
    batch: Batch,
    misfit: Callable[..., Array] | None = None,
    **options: Unpack[Options],
) -> Fitted:
    """As `fit`, without q; `misfit` is minus the log prior of the hyperparameters."""
    batches, rule = Arrays(batch, len(batch.x)), _rule(misfit)
    steps = options["steps"] = options.get("steps") or STEPS
    short = Options(steps=min(LAP, steps), checkpoint=None, resume=False)
    if options.get("resume"):
        short["log"] = None  # or they would erase that of the run
    objective = lambda run: run.history[-1].objective
    best, lap = None, options | short
    for each in initial if len(initial) > 1 else ():
        found = with_fallback(best, lambda each=each: run(rule, each, batches, **lap))
        if found.history.reason == INTERRUPTED:
            return found
        is_better = best is None or objective(found) > objective(best)
        best = found if is_better else best
    start = initial[0] if best is None else best.params
    return with_fallback(best, lambda: run(rule, start, batches, **options))


@functools.cache
def _rule(misfit: Callable[..., Array] | None) -> Rule:
    """One object, so that it is compiled once."""

    def evaluate(
        params: PyTree, kept: PyTree, batch: Batch, complete: Constants = NONE
    ) -> Evaluated:
        def loss(params: PyTree) -> Array:
            whole = complete(params)
            loss = -log_marginal_likelihood(whole, batch)
            if misfit is not None:
                loss += misfit(whole.kernel, whole.likelihood, batch)
            return loss

        return Evaluated(params, *jax.value_and_grad(loss)(params), kept)

    return lbfgs_rule(evaluate, total_weight, window=WINDOW)
