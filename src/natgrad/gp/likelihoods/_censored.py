"""Targets that are only known to lie between two bounds."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad._quadrature import spread
from natgrad._text import brief
from natgrad.errors import InputError
from natgrad.gp.likelihoods._base import (
    AbstractLikelihood,
    AbstractQuadrature,
    Scalar,
    Target,
    column,
    expectation,
    log_sum_exp,
    require,
)
from natgrad.gp.likelihoods._continuous import Gaussian
from natgrad.gp.likelihoods._support import Support


Numbers = Float[Array, "..."]


class Censored(AbstractQuadrature):
    """Targets of another likelihood, some of them only known to be between bounds.

    The columns `lower` and `upper` say so: y of a row is above `lower` and at most
    `upper`, either of which may be infinite. If they are equal, y was observed, and so
    were all targets without these columns. natgrad ignores y of a censored row, which
    must still be a finite number. Predictions are of y itself.

    Raises:
        InputError: If `noise` has several latent functions, or no distribution
            function that JAX can differentiate.

    >>> noise = gp.likelihoods.Censored(gp.likelihoods.Gaussian(0.25))
    >>> row = noise.given(lower=jnp.array(1.0), upper=jnp.array(jnp.inf))
    >>> print(f"{jnp.exp(row.log_prob(jnp.array(0.5), jnp.array(0.0))):.2f}")
    0.16
    """

    noise: AbstractLikelihood
    lower: Numbers | None = column()
    upper: Numbers | None = column()

    def __check_init__(self):
        name = type(self.noise).__name__
        if self.noise.latents is not None:
            raise InputError(
                f"noise is {name}, which has {self.noise.latents} latent functions; it "
                "should be a likelihood with one"
            )
        if isinstance(self.noise, Censored):
            raise InputError("noise is censored already; give what it has as its noise")
        try:
            _traced(self.noise, self.support.inside)
        except Exception as error:  # of a user's own class too
            raise InputError(
                f"noise is {name}, which has no probabilities of an interval that can "
                f"be differentiated: {brief(error)}"
            ) from error

    @property
    def columns(self) -> tuple[str, ...]:
        return ("lower", "upper", *self.noise.columns)

    @property
    def observed(self) -> AbstractLikelihood:
        return self.noise

    @property
    def support(self) -> Support:
        return self.noise.support

    @property
    def link(self) -> str:
        return self.noise.link

    def in_units(self, scale: float) -> "Censored":
        return Censored(self.noise.in_units(scale))

    def summary(self, scale: float) -> list[tuple[str, float]]:
        return self.noise.summary(scale)

    def start(self, mean: float) -> float:
        return self.noise.start(mean)

    @property
    def points(self) -> int:
        return max(super().points, self.noise.points)

    def given(self, **columns: Any) -> "Censored":
        inner = {
            name: columns.pop(name) for name in self.noise.columns if name in columns
        }
        noise = self.noise.given(**inner)
        return eqx.tree_at(lambda tree: tree.noise, super().given(**columns), noise)

    def _either(
        self, mean: Scalar, var: Scalar, y: Target, between: Any, observed: Any
    ) -> Scalar:
        """A function of bounds if y is censored, and else one of y.

        Both are computed: what is not used sees numbers at which it is finite.
        """
        if self.lower is None or self.upper is None:
            return observed(mean, var, y)
        lower, upper = (bound.astype(mean.dtype) for bound in (self.lower, self.upper))
        is_hidden = lower < upper
        either = lambda hidden, seen: jnp.where(is_hidden, hidden, seen)
        inside = jnp.asarray(self.support.inside, y.dtype)
        hidden = between(
            either(mean, 0),
            either(var, 1),
            either(lower, -jnp.inf),
            either(upper, jnp.inf),
        )
        return either(
            hidden, observed(either(0, mean), either(1, var), either(inside, y))
        )

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        return self._either(
            f,
            jnp.zeros_like(f),
            y,
            lambda f, _, *bounds: log_between(self.noise, f, *bounds),
            lambda f, _, y: self.noise.log_prob(f, y),
        )

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        def between(mean: Scalar, var: Scalar, *bounds: Scalar) -> Scalar:
            given = lambda f: log_between(self.noise, f, *bounds)
            return expectation(given, mean, var, self.rule())

        return self._either(mean, var, y, between, self.noise.expected_log_prob)

    def log_predictive(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        def between(mean: Scalar, var: Scalar, *bounds: Scalar) -> Scalar:
            if isinstance(self.noise, Gaussian):
                return log_between(self.noise.widened(var), mean, *bounds)
            points, log_weights = self.predictive_rule()
            given = lambda f: log_between(self.noise, f, *bounds)
            log_probs = jax.vmap(given)(spread(mean, var, points))
            return log_sum_exp(log_probs + jnp.asarray(log_weights, log_probs.dtype))

        return self._either(mean, var, y, between, self.noise.log_predictive)

    # All else is of the target itself, which is what one wants to know.

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return self.noise.moments(f, jnp.zeros_like(f))

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        return self.noise.moments(mean, var)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        return self.noise.predictive_cdf(f, jnp.zeros_like(f), y)

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        return self.noise.log_tails(f, y)

    def predictive_cdf(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        return self.noise.predictive_cdf(mean, var, y)

    def quantile(self, mean: Scalar, var: Scalar, level: Scalar) -> Scalar:
        return self.noise.quantile(mean, var, level)

    def probabilities(self, mean: Scalar, var: Scalar) -> Float[Array, " K"]:
        return self.noise.probabilities(mean, var)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Target:
        return self.noise.sample(key, f)

    def check(self, y: np.ndarray) -> None:
        require(np.isfinite(y), y, "Censored needs finite targets, of all rows")
        if self.lower is None and self.upper is None:
            self.noise.check(y)
            return
        if self.lower is None or self.upper is None:
            missing = "lower" if self.lower is None else "upper"
            raise InputError(
                f"there is no column {missing!r}; Censored takes 'lower' and 'upper' "
                "together, infinite where there is no bound"
            )
        bounds = np.asarray(self.lower), np.asarray(self.upper)
        lower, upper = (np.broadcast_to(bound, np.shape(y)) for bound in bounds)
        require(lower <= upper, lower, "lower should be at most upper", "bounds")
        is_hidden, (start, end) = lower < upper, (self.support.low, self.support.high)
        round_down = np.floor if self.support.is_whole else lambda bound: bound
        low = np.maximum(round_down(lower), start)
        high = np.minimum(round_down(upper), end)
        rule = f"{type(self.noise).__name__} needs bounds with targets between them"
        require(~is_hidden | (low < high), upper, rule, "rows")
        inside = np.asarray(self.support.inside, y.dtype)
        self.noise.check(np.where(is_hidden, inside, y))


def _traced(noise: AbstractLikelihood, inside: float) -> None:
    """Traces the derivatives of the tails, and raises what they raise."""

    @eqx.filter_grad
    def slope(parts: tuple[AbstractLikelihood, Scalar]) -> Scalar:
        noise, f = parts
        return sum(noise.log_tails(f, jnp.full_like(f, inside)), jnp.zeros_like(f))

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        eqx.filter_eval_shape(slope, (noise, jnp.zeros(())))


def log_between(
    noise: AbstractLikelihood, f: Scalar, lower: Scalar, upper: Scalar
) -> Scalar:
    """log P(lower < y ≤ upper | f), from the tails beyond y.

    It is a difference of probabilities in the tail where both are small.
    """
    support = noise.support
    if support.is_whole:
        lower, upper = jnp.floor(lower), jnp.floor(upper)
    start, end = support.low, support.high
    has_lower, has_upper = lower > start, upper < end
    inside = jnp.asarray(support.inside, lower.dtype)
    below_lower, above_lower = noise.log_tails(f, jnp.where(has_lower, lower, inside))
    below_upper, above_upper = noise.log_tails(f, jnp.where(has_upper, upper, inside))
    is_above = below_lower > above_lower
    larger = jnp.where(is_above, above_lower, below_upper)
    smaller = jnp.where(is_above, above_upper, below_lower)
    # An interval that is narrower than rounding is as wide as that.
    least = jnp.finfo(lower.dtype).eps * (1 - larger)
    is_both = has_lower & has_upper
    gap = jnp.where(is_both, jnp.maximum(larger - smaller, least), 1)
    both = larger + jnp.log(-jnp.expm1(-gap))
    one = jnp.where(has_lower, above_lower, jnp.where(has_upper, below_upper, 0))
    return jnp.where(is_both, both, one)
