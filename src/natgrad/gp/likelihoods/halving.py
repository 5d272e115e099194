"""Quantiles by a fixed number of halvings, in operations that other languages have."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.gp.likelihoods.base import AbstractLikelihood, AbstractNumerical
from natgrad.gp.likelihoods.continuous import Gaussian


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
    high = jnp.full_like(level, FARTHEST[support])
    low = -high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_short = likelihood.predictive_cdf(mean, var, at(middle)) < level
        low = jnp.where(is_short, middle, low)
        high = jnp.where(is_short, high, middle)
    return at((low + high) / 2)


def _first_count(
    likelihood: AbstractLikelihood, mean: Array, var: Array, level: Scalar
) -> Scalar:
    low, high = -jnp.ones_like(level), jnp.full_like(level, 2.0**53)
    for _ in range(54):
        middle = jnp.floor((low + high) / 2)
        is_short = likelihood.predictive_cdf(mean, var, middle) < level
        low = jnp.where(is_short, middle, low)
        high = jnp.where(is_short, high, middle)
    return high
