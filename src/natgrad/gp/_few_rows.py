"""A prior on the hyperparameters of tables with few rows, which cannot tell them.

The evidence of few rows is often highest where all of them lie on a curve that a few
inputs explain without noise, and the predictions are then far too certain. However many
rows there are, Gaussian noise does not vanish.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import stdtrit

from natgrad.data._batches import Batch
from natgrad.gp.kernels import AbstractKernel, AbstractStationary
from natgrad.gp.likelihoods import AbstractLikelihood, Gaussian, LinearCoregionalization


FADED = 128
"""The prior is weaker the more rows there are, and is gone with so many."""

NOISE = 0.3
"""The noise that is expected, as a part of the standard deviation of the targets."""

LEAST = 3e-5
"""The least noise, as a part of the same. With less, the sums over rows that find q
have no correct digits left."""

FEWEST, EACH = 10, 10
"""The fewest rows that tell how wide intervals should be: in any table, and for each
hyperparameter of a small table if they have no prior."""


def _widening(rows: int) -> float:
    """How much wider than the deviation of so few targets their spread may be.

    It is the ratio of Student's 95 % interval for a new target to that of a normal
    distribution with their deviation. One row is taken for two.
    """
    rows = max(rows, 2)
    half = float(stdtrit(rows - 1, 0.975)) * math.sqrt((rows + 1) / (rows - 1))
    return half / 1.96


_LOG_WIDENING = np.log([_widening(rows) for rows in range(FADED + 1)])


def few(rows: int, hyperparameters: int = 0) -> str | None:
    """What to warn of, if so few rows cannot tell how wide intervals should be."""
    least = max(FEWEST, min(EACH * hyperparameters, FADED))
    if rows >= least:
        return None
    are = "is 1 distinct row" if rows == 1 else f"are {rows} distinct rows"
    return (
        f"there {are}, too few to tell noise from signal; intervals may be far too "
        f"narrow or too wide with fewer than {least}"
    )


def is_noisy(likelihood: AbstractLikelihood, rows: Batch) -> bool:
    """Whether targets are f with noise that may vanish, and all were observed."""
    return likelihood.is_location and "upper" not in rows.columns


def misfit(kernel: AbstractKernel, likelihood: Any, batch: Batch) -> Float[Array, ""]:
    """Minus the log prior of the hyperparameters, up to a constant; never negative.

    Inputs have variance 1. In logarithms each lengthscale is expected at √D, the
    deviation of the function at that of the targets, widened as theirs is uncertain,
    and the noise at `NOISE` of it, each within a factor of e or so.
    """
    x, y = jnp.asarray(batch.x), jnp.asarray(batch.y)
    zero = jnp.zeros((), x.dtype)
    weight = jnp.ones(len(y)) if batch.weight is None else jnp.asarray(batch.weight)
    weight = weight.astype(x.dtype)
    vanished = zero
    if isinstance(likelihood, Gaussian):
        vanished = _of_vanished(likelihood, y.astype(x.dtype), weight)
    if len(y) > FADED:
        return vanished
    log_root, total = math.log(x.shape[1]) / 2, zero
    log_variance = zero + math.log(2.0)  # where kernels begin
    if is_noisy(likelihood, batch):
        spread = _log_spread(y.astype(x.dtype), weight)
        log_variance = 2 * spread
        total += _of_noise(likelihood, spread)
    is_stationary = lambda node: isinstance(node, AbstractStationary)
    for node in jax.tree.leaves(kernel, is_leaf=is_stationary):
        if is_stationary(node):
            total += ((node.log_lengthscale - log_root) ** 2).sum()
            total += ((node.log_variance - log_variance) ** 2).sum()
    total *= _strength(weight)
    if isinstance(likelihood, LinearCoregionalization):
        total += _of_outputs(likelihood, y.astype(x.dtype), weight)
    return total / 2 + vanished


def misfit_of_sample(
    _: AbstractKernel, likelihood: Gaussian, batch: Batch
) -> Float[Array, ""]:
    """Minus the log prior of the noise alone, for some of many rows.

    A sample may not tell noise from a rough function, and without any noise the rows
    that are not in it would be impossible.
    """
    x, y = jnp.asarray(batch.x), jnp.asarray(batch.y)
    weight = jnp.ones(len(y)) if batch.weight is None else jnp.asarray(batch.weight)
    y, weight = y.astype(x.dtype), weight.astype(x.dtype)
    expected = _of_noise(likelihood, _log_deviation(y, weight)) / 2
    return expected + _of_vanished(likelihood, y, weight)


def least_noise(y: Array, weight: Array) -> Array:
    """The least standard deviation that the noise of these targets may have."""
    return LEAST * jnp.exp(_log_deviation(y, weight))


def _of_vanished(likelihood: Gaussian, y: Array, weight: Array) -> Array:
    """0 unless there is less noise than the least; then it grows as fast as rows do.

    The evidence has no bound where rows agree exactly.
    """
    least = jnp.log(least_noise(y, weight))
    return weight.sum() * jnp.maximum(least - likelihood.log_noise, 0) ** 2


def _of_noise(likelihood: AbstractLikelihood, log_spread: Array) -> Array:
    """The squared distance of the noise from what is expected, on logarithms."""
    if likelihood.log_noise is None:
        return jnp.zeros_like(log_spread)
    return (likelihood.log_noise - (log_spread + math.log(NOISE))) ** 2


def _of_outputs(
    likelihood: LinearCoregionalization, y: Float[Array, "N P"], weight: Array
) -> Array:
    """That of the noise of each output, whose targets may have gaps, and of the mixing.

    Each number of the mixing matrix is expected at 0, within 1 or so.
    """
    total = _strength(weight) * (likelihood.mixing.astype(y.dtype) ** 2).sum()
    for own, target in zip(likelihood.likelihoods, y.T, strict=True):
        is_seen = ~jnp.isnan(target)
        known = jnp.where(is_seen, weight, 0)
        if own.is_location:
            spread = _log_spread(jnp.where(is_seen, target, 0), known)
            total += _strength(known) * _of_noise(own, spread)
    return total


def _strength(weight: Array) -> Array:
    """How strong the prior is, given the rows with a weight above 0."""
    rows = (weight > 0).sum().astype(weight.dtype)
    return jnp.maximum(1 - rows / FADED, 0)


def _log_spread(y: Array, weight: Array) -> Array:
    """The deviation that is expected of targets like these."""
    widening = jnp.asarray(_LOG_WIDENING, y.dtype)[(weight > 0).sum()]
    return _log_deviation(y, weight) + widening


def _log_deviation(y: Array, weight: Array) -> Array:
    """That of the targets, or 0 if they are all equal."""
    part = weight / jnp.maximum(weight.sum(), jnp.finfo(y.dtype).tiny)
    variance = part @ (y - part @ y) ** 2
    return jnp.log(jnp.where(variance > 0, variance, 1.0)) / 2
