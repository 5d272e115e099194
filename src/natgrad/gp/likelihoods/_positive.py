"""Positive targets: Gamma, Weibull."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammainc, gammaincc, gammaln
from jaxtyping import PRNGKeyArray
from scipy import special

from natgrad.gp._parameters import Numbers, as_logs
from natgrad.gp.likelihoods._base import AbstractQuadrature, Scalar, Target
from natgrad.gp.likelihoods._support import Parameter, Support


class AbstractShaped(AbstractQuadrature):
    """y > 0 whose scale is exp(f), with a shape that is a parameter."""

    support = Support.POSITIVE
    link = "log"
    parameters = (Parameter("log_shape", "shape", "shape"),)
    log_shape: Scalar

    @property
    def shape(self) -> Scalar:
        """The larger, the less y varies about its mean."""
        return jnp.exp(self.log_shape)

    @property
    def how(self) -> str:
        return "closed form"


class Gamma(AbstractShaped):
    """y > 0 from a gamma distribution with mean exp(f); its shape is a parameter.

    >>> likelihood = gp.likelihoods.Gamma(shape=4.0)
    >>> mean, variance = likelihood.moments(jnp.array(0.0), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.2f}")
    1.05 0.42
    """

    def __init__(self, shape: Numbers = 1.0, *, nodes: int = 20):
        self.log_shape = as_logs("shape", shape)
        self.nodes = nodes

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        # Bounds f from below, so that y / exp(f) does not overflow.
        size = jnp.log(jnp.maximum(y.astype(f.dtype), 1))
        least = size + 10 - jnp.log(jnp.finfo(f.dtype).max)
        return self.expected_log_prob(jnp.maximum(f, least), jnp.zeros_like(f), y)

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        y, shape = y.astype(mean.dtype), self.shape
        constant = shape * self.log_shape - gammaln(shape) + (shape - 1) * jnp.log(y)
        return constant - shape * (mean + y * jnp.exp(var / 2 - mean))

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.exp(f), jnp.exp(2 * f) / self.shape

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        ratio = jnp.expm1(var) + jnp.exp(var) / self.shape
        return jnp.exp(mean + var / 2), jnp.exp(2 * mean + var) * ratio

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        shape, y = self.shape, jnp.maximum(y.astype(f.dtype), 0)
        return gammainc(shape, shape * y * jnp.exp(-f))

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        shape = float(self.shape)
        # 0 and infinity are right here: the probability is then 0 or 1.
        with np.errstate(divide="ignore", over="ignore"):
            part = np.exp(np.log(shape * np.maximum(y, 0)) - f)
        return special.gammainc(shape, part)

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        log_y = jnp.log(y.astype(f.dtype))
        return log_gamma_tails(self.shape, self.log_shape + log_y - f)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        shape = self.shape
        return jax.random.gamma(key, shape, (), f.dtype) / shape * jnp.exp(f)


def log_gamma_tails(shape: Scalar, log_x: Scalar) -> tuple[Scalar, Scalar]:
    """log P(a, x) and log Q(a, x), the incomplete gamma functions, of a and log x."""
    limits = jnp.finfo(log_x.dtype)
    log_x = jnp.minimum(log_x, jnp.log(limits.max) - 10)
    x, least = jnp.exp(log_x), limits.tiny**0.5
    below, above = (lax.stop_gradient(tail(shape, x)) for tail in (gammainc, gammaincc))
    is_low, is_high = below < least, above < least
    middle = jnp.where(is_low | is_high, shape, x)
    below, above = gammainc(shape, middle), gammaincc(shape, middle)
    # The smaller of the two has digits, and their sum is 1.
    is_small = below < above
    smaller = jnp.where(is_small, below, above)
    log_smaller, log_larger = jnp.log(smaller), jnp.log1p(-smaller)
    log_below = jnp.where(is_small, log_smaller, log_larger)
    log_above = jnp.where(is_small, log_larger, log_smaller)
    low = _log_lower_tail(shape, jnp.where(is_low, log_x, 0))
    high = _log_upper_tail(shape, jnp.where(is_high, log_x, jnp.log(2 * shape + 99)))
    log_below = jnp.where(is_low, low, jnp.where(is_high, 0, log_below))
    return log_below, jnp.where(is_high, high, jnp.where(is_low, 0, log_above))


def _log_lower_tail(shape: Scalar, log_x: Scalar) -> Scalar:
    """log P(a, x) far below a: a power series that ends as a geometric one."""
    x, terms = jnp.exp(log_x), 30
    ratio = x / (shape + terms + 1)
    series = ratio / (1 - jnp.minimum(ratio, 0.99))
    for n in range(terms, 0, -1):
        series = x / (shape + n) * (1 + series)
    return shape * log_x - x - gammaln(shape + 1) + jnp.log1p(series)


def _log_upper_tail(shape: Scalar, log_x: Scalar) -> Scalar:
    """log Q(a, x) far above a, by Legendre's continued fraction."""
    x, terms = jnp.exp(log_x), 10
    fraction = x + 2 * terms + 1 - shape
    for n in range(terms, 0, -1):
        fraction = x + 2 * n - 1 - shape - n * (n - shape) / fraction
    return shape * log_x - x - gammaln(shape) - jnp.log(fraction)


class Weibull(AbstractShaped):
    """y > 0 with P(y > t | f) = exp(−(t/s)^k), of scale s = exp(f) and shape k.

    The scale is the time that a share of 1/e exceeds, and not the mean, which is
    s Γ(1 + 1/k). The shape is a parameter: 1 is an exponential distribution, more a
    hazard that rises with t.

    >>> likelihood = gp.likelihoods.Weibull(shape=2.0)
    >>> mean, variance = likelihood.moments(jnp.array(0.0), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.2f}")
    0.93 0.35
    """

    def __init__(self, shape: Numbers = 1.0, *, nodes: int = 20):
        self.log_shape = as_logs("shape", shape)
        self.nodes = nodes

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        # Bounds f from below, so that (y / exp(f))^k does not overflow.
        largest = (jnp.log(jnp.finfo(f.dtype).max) - 10) / self.shape
        f = jnp.maximum(f, jnp.log(y.astype(f.dtype)) - largest)
        return self.expected_log_prob(f, jnp.zeros_like(f), y)

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        log_y, shape = jnp.log(y.astype(mean.dtype)), self.shape
        power = shape * (log_y - mean)
        hazard = jnp.exp(power + shape**2 * var / 2)
        return self.log_shape + power - log_y - hazard

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return self.moments(f, jnp.zeros_like(f))

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        part = jnp.exp(-self.log_shape)
        log_mean = gammaln(1 + part)
        spread = jnp.expm1(gammaln(1 + 2 * part) - 2 * log_mean)
        ratio = jnp.expm1(var) + jnp.exp(var) * spread
        centre = mean + log_mean
        return jnp.exp(centre + var / 2), jnp.exp(2 * centre + var) * ratio

    def _log_hazard(self, f: Scalar, y: Target) -> Scalar:
        """k log(y/s), as far as its exponential is a number."""
        largest = jnp.log(jnp.finfo(f.dtype).max) - 10
        return jnp.minimum(self.shape * (jnp.log(y.astype(f.dtype)) - f), largest)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        y = jnp.maximum(y.astype(f.dtype), 0)
        return -jnp.expm1(-jnp.exp(self._log_hazard(f, y)))

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):  # of 0, whose probability is 0
            log_hazard = float(self.shape) * (np.log(np.maximum(y, 0)) - f)
        return -np.expm1(-np.exp(np.minimum(log_hazard, 700)))

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        log_hazard = self._log_hazard(f, y)
        hazard = jnp.exp(log_hazard)
        # Where the hazard is small it is the probability, and may round to zero.
        is_small = log_hazard < -2
        small = jnp.where(is_small, hazard, 0)
        large = jnp.where(is_small, 1, hazard)
        series = jnp.zeros_like(small)
        for n in range(12, 1, -1):  # (1 − exp(−h))/h − 1
            series = -small / n * (1 + series)
        log_below = jnp.where(
            is_small, log_hazard + jnp.log1p(series), jnp.log1p(-jnp.exp(-large))
        )
        return log_below, -hazard

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        log_hazard = jnp.log(jax.random.exponential(key, (), f.dtype))
        return jnp.exp(f + log_hazard / self.shape)
