"""A prior on the hyperparameters of tables with few rows, which cannot tell them.

The evidence of few rows is often highest where all of them lie on a curve that a few
inputs explain without noise, and the predictions are then far too certain.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import stdtrit

from natgrad.data._batch import Batch, split
from natgrad.gp.kernels import AbstractKernel, AbstractStationary
from natgrad.gp.likelihoods import Gaussian, HeteroskedasticGaussian, StudentT


__all__ = ["FADED", "few", "misfit"]

FADED = 128
"""The prior is weaker the more rows there are, and is gone with so many."""

NOISE = 0.3
"""The noise that is expected, as a part of the standard deviation of the targets."""

FEWEST, EACH = 10, 10
"""The fewest rows that tell how wide intervals should be: in any table, and for each
hyperparameter of a small table if they have no prior."""

NOISY = (Gaussian, StudentT, HeteroskedasticGaussian)
"""Likelihoods of real targets, whose noise may vanish."""


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


def misfit(kernel: AbstractKernel, likelihood: Any, batch: Batch) -> Float[Array, ""]:
    """Minus the log prior of the hyperparameters, up to a constant; never negative.

    Inputs have variance 1. In logarithms each lengthscale is expected at √D, the
    deviation of the function at that of the targets, widened as theirs is uncertain,
    and the noise at `NOISE` of it, each within a factor of e or so.
    """
    x, y = jnp.asarray(batch.x), jnp.asarray(split(batch.y)[0])
    zero = jnp.zeros((), x.dtype)
    if len(y) > FADED:
        return zero
    weight = jnp.ones(len(y)) if batch.weight is None else jnp.asarray(batch.weight)
    rows = (weight > 0).sum()
    log_root, total = math.log(x.shape[1]) / 2, zero
    log_variance = zero + math.log(2.0)  # where kernels begin
    if isinstance(likelihood, NOISY):
        spread = _log_deviation(y.astype(x.dtype), weight.astype(x.dtype))
        spread += jnp.asarray(_LOG_WIDENING, x.dtype)[rows]
        log_variance, log_noise = 2 * spread, spread + math.log(NOISE)
        if isinstance(likelihood, Gaussian):
            total += (likelihood.log_variance / 2 - log_noise) ** 2
        if isinstance(likelihood, StudentT):
            total += (likelihood.log_scale - log_noise) ** 2
    is_stationary = lambda node: isinstance(node, AbstractStationary)
    for node in jax.tree.leaves(kernel, is_leaf=is_stationary):
        if is_stationary(node):
            total += ((node.log_lengthscale - log_root) ** 2).sum()
            total += ((node.log_variance - log_variance) ** 2).sum()
    return jnp.maximum(1 - rows.astype(x.dtype) / FADED, 0) * total / 2


def _log_deviation(y: Array, weight: Array) -> Array:
    """That of the targets, or 0 if they are all equal."""
    part = weight / weight.sum()
    variance = part @ (y - part @ y) ** 2
    return jnp.log(jnp.where(variance > 0, variance, 1.0)) / 2
