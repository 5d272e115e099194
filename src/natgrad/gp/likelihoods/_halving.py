"""Quantiles by a fixed number of halvings, in operations that other languages have."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.gp.likelihoods._base import AbstractLikelihood, AbstractNumerical
from natgrad.gp.likelihoods._continuous import Gaussian


Scalar = Float[Array, ""]

HALVINGS = 44
FARTHEST = {"real": 40.0, "positive": 700.0, "unit": 700.0}
"""How far t is searched; a real y is a centre + sinh(t)."""


def quantile_by_halving(
    likelihood: AbstractLikelihood, mean: Array, var: Array, level: Scalar
) -> Scalar:
    """The smallest y that is not exceeded with probability `level`.

    The steps are written out one by one: a file of NumPy or ONNX has no loop.
    """
    if isinstance(likelihood, Gaussian):
        return likelihood.quantile(mean, var, level)
    support = "real"
    if isinstance(likelihood, AbstractNumerical):
        support = likelihood.support
    if support == "count":
        return _first_count(likelihood, mean, var, level)
    centre = mean if mean.ndim == 0 else mean[0]
    at = {
        "real": lambda t: centre + (jnp.exp(t) - jnp.exp(-t)) / 2,
        "positive": jnp.exp,
        "unit": jax.nn.sigmoid,
    }[support]
    # Jitted, it is traced once and not at each halving.
    halved = jax.jit(
        lambda low, high: _halved(
            (low + high) / 2,
            low,
            high,
            lambda t: likelihood.predictive_cdf(mean, var, at(t)) < level,
        )
    )
    high = jnp.full_like(level, FARTHEST[support])
    low = -high
    for _ in range(HALVINGS):
        low, high = halved(low, high)
    return at((low + high) / 2)


def _first_count(
    likelihood: AbstractLikelihood, mean: Array, var: Array, level: Scalar
) -> Scalar:
    halved = jax.jit(
        lambda low, high: _halved(
            jnp.floor((low + high) / 2),
            low,
            high,
            lambda y: likelihood.predictive_cdf(mean, var, y) < level,
        )
    )
    low, high = -jnp.ones_like(level), jnp.full_like(level, 2.0**53)
    for _ in range(54):
        low, high = halved(low, high)
    return high


def _halved(
    middle: Scalar, low: Scalar, high: Scalar, is_short: Callable[[Scalar], Array]
) -> tuple[Scalar, Scalar]:
    """The half of an interval that holds the quantile."""
    short = is_short(middle)
    return jnp.where(short, middle, low), jnp.where(short, high, middle)
