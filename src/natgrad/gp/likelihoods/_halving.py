"""Quantiles by a fixed number of halvings, in operations that ONNX has."""

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
    """The y that is not exceeded with probability `level`.

    The steps are written out one by one: an ONNX graph has no loop. A count's quantile
    has one, and so no ONNX equivalent.
    """
    is_numerical = isinstance(likelihood, AbstractNumerical)
    support = likelihood.support if is_numerical else "real"
    if isinstance(likelihood, Gaussian) or support == "count":
        return likelihood.quantile(mean, var, level)
    centre = mean if mean.ndim == 0 else mean[0]
    at = {
        "real": lambda t: centre + (jnp.exp(t) - jnp.exp(-t)) / 2,
        "positive": jnp.exp,
        "unit": jax.nn.sigmoid,
    }[support]

    # Jitted, it is traced once and not at each halving.
    @jax.jit
    def halved(low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        middle = (low + high) / 2
        is_short = likelihood.predictive_cdf(mean, var, at(middle)) < level
        return jnp.where(is_short, middle, low), jnp.where(is_short, high, middle)

    high = jnp.full_like(level, FARTHEST[support])
    low = -high
    for _ in range(HALVINGS):
        low, high = halved(low, high)
    return at((low + high) / 2)
