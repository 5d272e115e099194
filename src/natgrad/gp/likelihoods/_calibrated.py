"""Real targets whose predictions are calibrated on rows that were left out."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, Float
from scipy import stats

from natgrad.gp._parameters import Numbers, as_floats, as_logs
from natgrad.gp.likelihoods._base import AbstractLikelihood, Scalar, Target, column
from natgrad.gp.likelihoods._continuous import normal_log_prob
from natgrad.gp.likelihoods._support import Parameter, Support, quantile


FLOOR = 1e-9
"""The least variance of the noise, of targets with variance 1."""

LEAST_FREEDOM = 2.0
"""The degrees of freedom are more than this."""


class Calibrated(AbstractLikelihood):
    """Gaussian noise to condition on, and Student's t to predict with.

    While rows are conditioned on, y ~ N(f, σ²). The prediction of a new row is
    m + s e^c T, with m and s² the mean and the variance of N(f, σ²) averaged over f,
    and T a Student-t variable. The logarithm of its scale is c = `log_scale` + `slope`
    times the column `roughness`, which tells how large residuals are nearby.
    """

    link = "identity"
    parameters = (Parameter("log_variance", "noise", "noise (deviation)", 2),)
    log_variance: Scalar
    log_freedom: Scalar
    log_scale: Scalar
    slope: Scalar
    roughness: Float[Array, "..."] | None = column()

    def __init__(
        self,
        variance: Numbers = 1.0,
        freedom: Numbers = 6.5,
        scale: Numbers = 1.0,
        slope: Numbers = 0.0,
    ):
        self.log_variance = as_logs("variance", variance)
        self.log_freedom = as_logs("freedom - 2", as_floats(freedom) - LEAST_FREEDOM)
        self.log_scale = as_logs("scale", scale)
        self.slope = as_floats(slope)
        self.roughness = None

    @property
    def variance(self) -> Scalar:
        """σ², the variance of the noise."""
        return jnp.exp(self.log_variance) + FLOOR

    @property
    def known_variance(self) -> float:
        """σ² on the host, where JAX would compile each operation."""
        return math.exp(float(self.log_variance)) + FLOOR

    @property
    def noise(self) -> Scalar:
        """σ, the standard deviation of the noise."""
        return jnp.sqrt(self.variance)

    @property
    def freedom(self) -> Scalar:
        """The degrees of freedom of the Student-t."""
        return LEAST_FREEDOM + jnp.exp(self.log_freedom)

    @property
    def log_noise(self) -> Scalar:
        return jnp.log(self.variance) / 2

    def site(self, y: Target) -> tuple[Scalar, Scalar]:
        precision = 1 / self.variance
        return precision * y, precision

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        square = (y.astype(f.dtype) - f) ** 2
        return normal_log_prob(square, jnp.log(self.variance))

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        square = (y.astype(mean.dtype) - mean) ** 2 + var
        return normal_log_prob(square, jnp.log(self.variance))

    def log_width(self, var: Scalar) -> Scalar:
        """The logarithm of the scale of the Student-t."""
        width = jnp.log(var + self.variance) / 2 + self.log_scale
        return width if self.roughness is None else width + self.slope * self.roughness

    def log_predictive(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        width, freedom = self.log_width(var), self.freedom
        z = (y.astype(mean.dtype) - mean) * jnp.exp(-width)
        half = (freedom + 1) / 2
        constant = gammaln(half) - gammaln(freedom / 2)
        constant -= jnp.log(freedom * math.pi) / 2
        return constant - half * jnp.log1p(z**2 / freedom) - width

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        freedom = self.freedom
        return mean, jnp.exp(2 * self.log_width(var)) * freedom / (freedom - 2)

    def predictive_cdf(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        z = (y.astype(mean.dtype) - mean) * jnp.exp(-self.log_width(var))
        tail = betainc(self.freedom / 2, 0.5, self.freedom / (self.freedom + z**2)) / 2
        return jnp.where(z > 0, 1 - tail, tail)

    def quantile(self, mean: Scalar, var: Scalar, level: Scalar) -> Scalar:
        cdf = lambda y: self.predictive_cdf(mean, var, y)
        return quantile(cdf, level, Support.REAL, mean)

    def _scipy_predictive(self, mean: np.ndarray, var: np.ndarray) -> Any:
        scale, slope, rough = self.log_scale, self.slope, self.roughness
        rough = 0.0 if rough is None else np.asarray(rough)
        width = np.sqrt(var + self.known_variance)
        width = width * np.exp(float(scale) + float(slope) * rough)
        freedom = LEAST_FREEDOM + math.exp(float(self.log_freedom))
        return stats.t(freedom, mean, width)
