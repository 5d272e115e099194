"""Real targets: Gaussian, HeteroskedasticGaussian, StudentT, Beta."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import betainc, gammaln, ndtri
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import special

from natgrad._normal import LOG_ROOT_TAU, log_ndtr, ndtr
from natgrad._quadrature import gauss_hermite, spread
from natgrad.errors import InputError
from natgrad.gp._parameters import as_logs
from natgrad.gp.likelihoods._base import (
    PREDICTIVE_NODES,
    TINY,
    AbstractLikelihood,
    AbstractQuadrature,
    Scalar,
    Target,
    column,
    expectation,
    log_sum_exp,
    require,
    require_link,
    scipy_link,
)
from natgrad.gp.likelihoods._support import Parameter, Support, quantile


Pair = Float[Array, "2"]
Numbers = Float[Array, "..."]


def normal_log_prob(square: Numbers, log_variance: Numbers) -> Numbers:
    """log N(y; f, σ²), from (y − f)² and log σ²."""
    return -(square * jnp.exp(-log_variance) + log_variance) / 2 - LOG_ROOT_TAU


class Gaussian(AbstractLikelihood):
    """y ~ N(f, σ²): real targets with constant noise.

    The column `noise_sd` is noise that is known of a row: y ~ N(f, σ² + noise_sd²).

    >>> noise = gp.likelihoods.Gaussian(0.25)
    >>> mean, variance = noise.moments(jnp.array(1.0), jnp.array(0.5))
    >>> print(f"{mean:.2f} {variance:.2f}")
    1.00 0.75
    """

    link = "identity"
    parameters = (Parameter("log_variance", "noise", "noise (deviation)", 2),)
    log_variance: Scalar
    noise_sd: Numbers | None = column()

    def __init__(self, variance: Any = 1.0):
        self.log_variance = as_logs("variance", variance)
        self.noise_sd = None

    @property
    def variance(self) -> Scalar:
        """σ², the variance of the noise."""
        return jnp.exp(self.log_variance)

    @property
    def noise(self) -> Scalar:
        """σ, the standard deviation of the noise."""
        return jnp.exp(self.log_noise)

    @property
    def log_noise(self) -> Scalar:
        return self.log_variance / 2

    @property
    def total(self) -> Scalar:
        """The variance of the noise of a row, with what is known of it."""
        known = self.noise_sd
        return self.variance if known is None else self.variance + known**2

    def _log_total(self) -> Scalar:
        return self.log_variance if self.noise_sd is None else jnp.log(self.total)

    def site(self, y: Target) -> tuple[Scalar, Scalar]:
        precision = 1 / self.total
        return precision * y.astype(precision.dtype), precision

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        return normal_log_prob((y.astype(f.dtype) - f) ** 2, self._log_total())

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        square = (y.astype(mean.dtype) - mean) ** 2 + var
        return normal_log_prob(square, self._log_total())

    def widened(self, var: Scalar) -> "Gaussian":
        """The noise about the mean of f, if f has this variance."""
        log_variance = jnp.log(var + self.total)
        where = lambda noise: (noise.log_variance, noise.noise_sd)
        is_leaf = lambda leaf: leaf is None
        return eqx.tree_at(where, self, (log_variance, None), is_leaf=is_leaf)

    def log_predictive(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        return self.widened(var).log_prob(mean, y)

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        return mean, var + self.total

    def quantile(self, mean: Scalar, var: Scalar, level: Scalar) -> Scalar:
        return mean + jnp.sqrt(var + self.total) * ndtri(level)

    def predictive_cdf(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        return ndtr((y.astype(mean.dtype) - mean) / jnp.sqrt(var + self.total))

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        z = (y.astype(f.dtype) - f) * jnp.exp(-self._log_total() / 2)
        return log_ndtr(z), log_ndtr(-z)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        return f + jnp.sqrt(self.total) * jax.random.normal(key, (), f.dtype)

    def check(self, y: np.ndarray) -> None:
        super().check(y)
        if self.noise_sd is not None:
            known = np.asarray(self.noise_sd)
            is_good = np.isfinite(known) & (known >= 0)
            require(is_good, known, "noise_sd should be finite, 0 or more", "numbers")


class HeteroskedasticGaussian(AbstractLikelihood):
    """y ~ N(f₁, exp(2 f₂)): the standard deviation of the noise is a function too.

    >>> noise = gp.likelihoods.HeteroskedasticGaussian()
    >>> noise.latents
    2
    >>> print(f"{noise.log_prob(jnp.zeros(2), jnp.array(1.0)):.2f}")
    -1.42
    """

    link = "identity"
    parameters = ()

    @property
    def latents(self) -> int:
        return 2

    def log_prob(self, f: Pair, y: Target) -> Scalar:
        return normal_log_prob((y.astype(f.dtype) - f[0]) ** 2, 2 * f[1])

    def expected_log_prob(self, mean: Pair, var: Pair, y: Target) -> Scalar:
        square = (y.astype(mean.dtype) - mean[0]) ** 2 + var[0]
        precision = jnp.exp(2 * (var[1] - mean[1]))
        return -square * precision / 2 - mean[1] - LOG_ROOT_TAU

    # Given the noise all is Gaussian: what is left is an integral over one latent.

    def log_predictive(self, mean: Pair, var: Pair, y: Target) -> Scalar:
        points, log_weights = gauss_hermite(PREDICTIVE_NODES)
        log_noise = 2 * spread(mean[1], var[1], points)
        total = jnp.logaddexp(log_noise, jnp.log(jnp.maximum(var[0], 0)))
        log_probs = normal_log_prob((y.astype(mean.dtype) - mean[0]) ** 2, total)
        return log_sum_exp(log_probs + jnp.asarray(log_weights, mean.dtype))

    def moments(self, mean: Pair, var: Pair) -> tuple[Scalar, Scalar]:
        return mean[0], var[0] + jnp.exp(2 * (mean[1] + var[1]))

    def predictive_cdf(self, mean: Pair, var: Pair, y: Target) -> Scalar:
        gap = y.astype(mean.dtype) - mean[0]
        given = lambda f: ndtr(gap / jnp.sqrt(var[0] + jnp.exp(2 * f)))
        return expectation(given, mean[1], var[1], gauss_hermite(PREDICTIVE_NODES))

    def _scipy_cdf(
        self, f: np.ndarray, y: np.ndarray, mean: np.ndarray, var: np.ndarray
    ) -> np.ndarray:
        return special.ndtr((y - mean) / np.sqrt(var + np.exp(2 * f)))

    def quantile(self, mean: Pair, var: Pair, level: Scalar) -> Scalar:
        cdf = lambda y: self.predictive_cdf(mean, var, y)
        return quantile(cdf, level, self.support, mean[0])

    def sample(self, key: PRNGKeyArray, f: Pair) -> Scalar:
        return f[0] + jnp.exp(f[1]) * jax.random.normal(key, (), f.dtype)


class StudentT(AbstractQuadrature):
    """y = f + σ ε, with ε from Student's t distribution: targets with outliers.

    The degrees of freedom `dof` are a constant, not a parameter.

    Raises:
        InputError: If `dof` is not positive or above 1e8.

    >>> noise = gp.likelihoods.StudentT(scale=0.5, dof=4.0)
    >>> print(f"{noise.log_prob(jnp.array(0.0), jnp.array(3.0)):.2f}")
    -6.04
    """

    link = "identity"
    parameters = (
        Parameter(
            "log_scale", "scale", "noise (scale, {0.dof:g} degrees of freedom)", 1
        ),
    )
    log_scale: Scalar
    dof: float = eqx.field(static=True)

    def __init__(self, scale: Any = 1.0, dof: float = 3.0, *, nodes: int = 20):
        # Beyond it, logarithms of the gamma function lose the digits of the density.
        if not 0 < dof <= 1e8:
            raise InputError(
                f"dof is {dof}; it should be positive and at most 1e8, where it is a "
                "Gaussian"
            )
        self.log_scale = as_logs("scale", scale)
        self.dof = float(dof)
        self.nodes = nodes

    @property
    def scale(self) -> Scalar:
        """σ; the standard deviation of the noise is larger."""
        return jnp.exp(self.log_scale)

    @property
    def log_noise(self) -> Scalar:
        return self.log_scale

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        root = jnp.exp(-self.log_scale) / math.sqrt(self.dof)
        return self._standard(root * (f - y.astype(f.dtype)))

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        # In units of the scale, its gradient needs no sum of its own over the nodes.
        root = jnp.exp(-self.log_scale) / math.sqrt(self.dof)
        mean = root * (mean - y.astype(mean.dtype))
        return expectation(self._standard, mean, root**2 * var, self.rule())

    def _standard(self, x: Scalar) -> Scalar:
        """log p(y | f) at x = (f − y)/(σ √ν)."""
        dof = self.dof
        constant = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)
        constant -= math.log(dof * math.pi) / 2
        return constant - self.log_scale - (dof + 1) / 2 * jnp.log(1 + x**2)

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        dof = self.dof
        factor = dof / (dof - 2) if dof > 2 else math.inf
        return f if dof > 1 else f * math.nan, factor * self.scale**2

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        mean, noise = self.conditional_moments(mean)
        return mean, var + noise

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        x = (y.astype(f.dtype) - f) / self.scale
        if self.dof.is_integer() and self.dof <= 50:
            return _student_t_cdf(x / math.sqrt(self.dof), int(self.dof))
        half = jnp.asarray(0.5, f.dtype)
        tail = betainc(self.dof * half, half, self.dof / (self.dof + x**2)) / 2
        return jnp.where(x > 0, 1 - tail, tail)

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        x = (y - f) / float(self.scale)
        if self.dof != 3:
            return special.stdtr(self.dof, x)
        x /= math.sqrt(3)  # a tenth of the time
        return 0.5 + (np.arctan(x) + x / (1 + x * x)) / math.pi

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        x = (y.astype(f.dtype) - f) / self.scale
        tail = _student_t_log_tail(jnp.where(x < 0, -x, x), self.dof)
        rest = jnp.log1p(-jnp.exp(tail))
        return jnp.where(x < 0, tail, rest), jnp.where(x < 0, rest, tail)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        return f + self.scale * jax.random.t(key, self.dof, (), f.dtype)


def _student_t_cdf(x: Scalar, dof: int) -> Scalar:
    """P(t ≤ x √ν) for whole ν, a finite sum (Abramowitz and Stegun 26.7.3, 26.7.4).

    It takes a hundredth of the time of the incomplete beta function.
    """
    square = 1 / (1 + x**2)  # cos² of the angle whose tangent is x
    start = 3 if dof % 2 else 2
    term = series = jnp.ones_like(x) if dof > 1 else jnp.zeros_like(x)
    for k in range(start, dof - 1, 2):
        term = term * (k - 1) / k * square
        series = series + term
    if dof % 2:
        return 0.5 + (jnp.arctan(x) + x * square * series) / math.pi
    return 0.5 + x * jnp.sqrt(square) * series / 2


def _student_t_log_tail(x: Scalar, dof: float) -> Scalar:
    """log P(t > x), for x ≥ 0."""
    is_far = x**2 > dof
    near = jnp.where(is_far, 0, x)
    if dof.is_integer() and dof <= 20:
        middle = _student_t_cdf(-near / math.sqrt(dof), int(dof))
    else:
        half = jnp.asarray(0.5, x.dtype)
        # The root at zero has no derivative, and the tail there is a half.
        square = jnp.where(near > 0, near, 1) ** 2
        middle = betainc(dof * half, half, dof / (dof + square)) / 2
        middle = jnp.where(near > 0, middle, half)
    # Far out, a power of u = ν/(ν + x²) ≤ 1/2 times the series of I_u(ν/2, 1/2).
    far = jnp.where(is_far, x, 2 * math.sqrt(dof))
    u, half = dof / (dof + far**2), dof / 2
    series, factor = jnp.zeros_like(u), 1.0
    factors = [factor := factor * (n - 0.5) / n for n in range(1, 50)]
    for n in range(49, 0, -1):
        series = u * (series + factors[n - 1] * half / (half + n))
    constant = math.lgamma(half + 0.5) - math.lgamma(half)
    constant -= math.log(math.pi) / 2 + math.log(dof)
    tail = constant - half * jnp.log1p(far**2 / dof) + jnp.log1p(series)
    return jnp.where(is_far, tail, jnp.log(middle))


class Beta(AbstractQuadrature):
    """y in (0, 1) from a beta distribution with α = s m and β = s (1 − m).

    Its mean m is the logistic function of f, or Φ(f) with `link="probit"`; s is a
    parameter.

    >>> likelihood = gp.likelihoods.Beta(scale=10.0)
    >>> mean, variance = likelihood.moments(jnp.array(0.0), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.3f}")
    0.50 0.028
    """

    support = Support.UNIT
    parameters = (Parameter("log_scale", "scale", "concentration"),)
    log_scale: Scalar
    link: str = eqx.field(static=True)

    def __init__(self, scale: Any = 1.0, link: str = "logit", *, nodes: int = 20):
        require_link(link)
        self.log_scale = as_logs("scale", scale)
        self.link = link
        self.nodes = nodes

    @classmethod
    def initial(cls, classes: int) -> "Beta":
        return cls(10.0)

    @property
    def scale(self) -> Scalar:
        """s: the larger, the less y varies about its mean."""
        return jnp.exp(self.log_scale)

    def _log_parameters(self, f: Scalar) -> tuple[Scalar, Scalar]:
        """log α and log β, each with its digits where the other is all of s."""
        log_mean = log_sigmoid if self.link == "logit" else log_ndtr
        return self.log_scale + log_mean(f), self.log_scale + log_mean(-f)

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        y = y.astype(f.dtype)
        log_alpha, log_beta = self._log_parameters(f)
        alpha, beta = jnp.exp(log_alpha), jnp.exp(log_beta)
        # Γ(x) = Γ(1 + x)/x stays finite in logarithms where x itself is rounded to 0.
        constant = gammaln(self.scale) + log_alpha + log_beta
        constant -= gammaln(1 + alpha) + gammaln(1 + beta)
        return constant + (alpha - 1) * jnp.log(y) + (beta - 1) * jnp.log1p(-y)

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        log_alpha, log_beta = self._log_parameters(f)
        variance = jnp.exp(log_alpha + log_beta - 2 * self.log_scale)
        return jnp.exp(log_alpha - self.log_scale), variance / (1 + self.scale)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        log_alpha, log_beta = self._log_parameters(f)
        tiny = jnp.finfo(f.dtype).tiny
        floor = lambda x: jnp.maximum(jnp.exp(x), tiny)
        y = jnp.clip(y.astype(f.dtype), 0, 1)
        return betainc(floor(log_alpha), floor(log_beta), y)

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean, scale = scipy_link(self.link), float(self.scale)
        alpha, beta = (np.maximum(scale * mean(g), TINY) for g in (f, -f))
        return special.betainc(alpha, beta, np.clip(y, 0, 1))

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        keys = jax.random.split(key)
        # In logarithms: a gamma variable of small shape is often rounded to 0.
        logs = [
            jax.random.loggamma(key, jnp.exp(log_shape), (), f.dtype)
            for key, log_shape in zip(keys, self._log_parameters(f), strict=True)
        ]
        return jax.nn.sigmoid(logs[0] - logs[1])
