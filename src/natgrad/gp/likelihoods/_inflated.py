"""Counts with more zeros: ZeroInflatedPoisson, ZeroInflatedNegativeBinomial."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.nn import log_sigmoid, sigmoid
from jaxtyping import PRNGKeyArray

from natgrad.errors import InputError
from natgrad.gp._parameters import Numbers, as_floats, as_logs
from natgrad.gp.likelihoods._base import AbstractQuadrature, Scalar, Target, expectation
from natgrad.gp.likelihoods._discrete import DISPERSION, NegativeBinomial, Poisson
from natgrad.gp.likelihoods._support import Parameter, Support


ZEROS = Parameter("logit_zeros", "zeros", "additional zeros")


class AbstractZeroInflated(AbstractQuadrature):
    """A count that is 0 with probability π whatever f is, and else another count."""

    support = Support.COUNT
    link = "log"
    logit_zeros: eqx.AbstractVar[Scalar]

    @property
    def zeros(self) -> Scalar:
        """π, the probability of a zero that is not from f."""
        return sigmoid(self.logit_zeros)

    @property
    @abc.abstractmethod
    def counts(self) -> Poisson | NegativeBinomial:
        """The likelihood of a count that is from f."""

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        # Beyond it a zero of the counts is impossible, and its slope overflows.
        bounded = jnp.minimum(f, jnp.log(jnp.finfo(f.dtype).max) / 2)
        given = self.counts.log_prob(jnp.where(y > 0, f, bounded), y)
        log_some = log_sigmoid(-self.logit_zeros)
        zero = log_some + jnp.where(y > 0, 0, given)
        either = jnp.logaddexp(log_sigmoid(self.logit_zeros), zero)
        return jnp.where(y > 0, log_some + given, either)

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        # Only a zero has two causes.
        none = jnp.zeros_like(y)
        zero = expectation(lambda f: self.log_prob(f, none), mean, var, self.rule())
        is_some = y > 0
        safe = lambda each: jnp.where(is_some, each, 0)
        some = self.counts.expected_log_prob(safe(mean), safe(var), y)
        return jnp.where(is_some, log_sigmoid(-self.logit_zeros) + some, zero)

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return self.moments(f, jnp.zeros_like(f))

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        rate, spread = self.counts.moments(mean, var)
        some = sigmoid(-self.logit_zeros)
        return some * rate, some * (spread + self.zeros * rate**2)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        some = sigmoid(-self.logit_zeros) * self.counts.cdf(f, y)
        return jnp.where(y < 0, 0, self.zeros + some)

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        # From −1 to 0 it rises to the zeros that are not from f, too.
        zeros, counts = float(self.zeros), self.counts._scipy_cdf(f, y)
        return zeros * np.clip(y + 1, 0, 1) + (1 - zeros) * counts

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        first, second = jax.random.split(key)
        is_zero = jax.random.bernoulli(first, self.zeros)
        return jnp.where(is_zero, 0, self.counts.sample(second, f))


class ZeroInflatedPoisson(AbstractZeroInflated):
    """A count that is 0 with probability π, and else Poisson with mean exp(f).

    π is `zeros`, a parameter between 0 and 1.

    Raises:
        InputError: If `zeros` is not strictly between 0 and 1.

    >>> likelihood = gp.likelihoods.ZeroInflatedPoisson(zeros=0.3)
    >>> print(f"{jnp.exp(likelihood.log_prob(jnp.array(1.0), jnp.array(0))):.2f}")
    0.35
    """

    parameters = (ZEROS,)
    logit_zeros: Scalar

    def __init__(self, zeros: Numbers = 0.1, *, nodes: int = 20):
        self.logit_zeros = as_logit("zeros", zeros)
        self.nodes = nodes

    @property
    def counts(self) -> Poisson:
        return Poisson(nodes=self.nodes)


class ZeroInflatedNegativeBinomial(AbstractZeroInflated):
    """A count that is 0 with probability π, and else `NegativeBinomial(dispersion)`.

    π is `zeros`, a parameter between 0 and 1.

    Raises:
        InputError: If `zeros` is not strictly between 0 and 1.

    >>> likelihood = gp.likelihoods.ZeroInflatedNegativeBinomial(0.5, zeros=0.3)
    >>> print(f"{jnp.exp(likelihood.log_prob(jnp.array(1.0), jnp.array(0))):.2f}")
    0.43
    """

    parameters = (DISPERSION, ZEROS)
    log_dispersion: Scalar
    logit_zeros: Scalar

    def __init__(
        self, dispersion: Numbers = 1.0, zeros: Numbers = 0.1, *, nodes: int = 20
    ):
        self.log_dispersion = as_logs("dispersion", dispersion)
        self.logit_zeros = as_logit("zeros", zeros)
        self.nodes = nodes

    @property
    def dispersion(self) -> Scalar:
        """a; at 0 the counts from f would be Poisson."""
        return jnp.exp(self.log_dispersion)

    @property
    def counts(self) -> NegativeBinomial:
        where = lambda counts: counts.log_dispersion
        counts = NegativeBinomial(nodes=self.nodes)
        return eqx.tree_at(where, counts, self.log_dispersion)


def as_logit(name: str, value: Numbers) -> Scalar:
    """The logit of a probability strictly between 0 and 1."""
    array = as_floats(value)
    if array.ndim:
        raise InputError(f"{name} has shape {list(array.shape)}; it should be a number")
    if not isinstance(array, Tracer) and not 0 < float(array) < 1:
        raise InputError(f"{name} is {value}; it should be between 0 and 1")
    return jnp.log(array) - jnp.log1p(-array)
