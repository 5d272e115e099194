"""Classes in order and counts: Bernoulli, Ordinal, Poisson, Binomial and others."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.nn import log_sigmoid, softplus
from jax.scipy.special import betainc, gammaincc, gammaln
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import special

from natgrad._normal import log_ndtr, log_ndtr_difference, ndtr
from natgrad.errors import InputError
from natgrad.gp._parameters import Numbers, as_floats, as_logs
from natgrad.gp.likelihoods._base import (
    TINY,
    AbstractQuadrature,
    Scalar,
    Target,
    column,
    require,
    require_link,
    scipy_link,
)
from natgrad.gp.likelihoods._positive import log_gamma_tails
from natgrad.gp.likelihoods._support import Parameter, Support


class Bernoulli(AbstractQuadrature):
    """y in {0, 1}, where P(y = 1 | f) is Φ(f), or logistic with `link="logit"`.

    >>> likelihood = gp.likelihoods.Bernoulli()
    >>> print(likelihood.probabilities(jnp.array(1.0), jnp.array(0.5)).round(2))
    [0.21 0.79]
    """

    support, classes = Support.SUCCESSES, 2
    link: str = eqx.field(static=True, default="probit")

    def __check_init__(self):
        require_link(self.link)

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        turned = jnp.where(y > 0, f, -f)
        return log_ndtr(turned) if self.link == "probit" else log_sigmoid(turned)

    def log_predictive(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        if self.link == "logit":
            return super().log_predictive(mean, var, y)
        turned = jnp.where(y > 0, mean, -mean)
        return log_ndtr(turned / jnp.sqrt(1 + var))

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        no, yes = self.probabilities(mean, var)
        return yes, no * yes

    def probabilities(self, mean: Scalar, var: Scalar) -> Float[Array, "2"]:
        log_prob = lambda y: self.log_predictive(mean, var, y)
        return jnp.exp(jax.vmap(log_prob)(jnp.arange(2)))

    def predictive_cdf(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        no = jnp.exp(self.log_predictive(mean, var, jnp.zeros_like(y)))
        return jnp.where(y < 0, 0, jnp.where(y < 1, no, 1)).astype(mean.dtype)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        log_prob = self.log_prob(f, jnp.ones_like(f))
        return jax.random.bernoulli(key, jnp.exp(log_prob)).astype(f.dtype)


class AbstractEdges(eqx.Module):
    """The edges between ordered classes. The class says whether they are learned."""

    @abc.abstractmethod
    def values(self) -> Float[Array, " E"]:
        """The edges, in increasing order."""


class FixedEdges(AbstractEdges):
    """Edges that stay fixed."""

    edges: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, edges: Numbers):
        self.edges = tuple(map(float, _increasing(edges)))

    def values(self) -> Float[Array, " E"]:
        return jnp.asarray(self.edges, dtype=float)


class LearnedEdges(AbstractEdges):
    """Edges that are parameters: the first of them, and the logarithms of the gaps."""

    first: Scalar
    log_gaps: Float[Array, " G"]

    def __init__(self, edges: Numbers):
        edges = as_floats(_increasing(edges))
        self.first, self.log_gaps = edges[0], jnp.log(jnp.diff(edges))

    def __check_init__(self):
        if not isinstance(self.first, Tracer):
            _increasing(self.values())

    def values(self) -> Float[Array, " E"]:
        gaps = jnp.exp(self.log_gaps)
        return jnp.concatenate([self.first[None], self.first + jnp.cumsum(gaps)])


def _increasing(edges: Numbers) -> np.ndarray:
    edges = np.asarray(edges)
    is_list = edges.ndim == 1 and edges.size > 0 and np.isfinite(edges).all()
    if not is_list or not (np.diff(edges) > 0).all():
        raise InputError(
            f"edges are {edges}; they should be one or more, finite and increasing"
        )
    return edges


class Ordinal(AbstractQuadrature):
    """y is the class k between whose edges f + σ ε lies, with ε ~ N(0, 1).

    There is one class more than edges: the first and the last class are open. The edges
    stay fixed unless `learn_edges` is true: they then start where you put them.

    >>> likelihood = gp.likelihoods.Ordinal([-1.0, 1.0])
    >>> print(likelihood.probabilities(jnp.array(0.5), jnp.array(0.1)).round(2))
    [0.08 0.61 0.32]
    >>> learned = gp.likelihoods.Ordinal([-1.0, 1.0], learn_edges=True)
    >>> len(jax.tree.leaves(likelihood)), len(jax.tree.leaves(learned))
    (1, 3)
    """

    support = Support.GRADES
    parameters = (Parameter("log_scale", "scale", "noise (scale)"),)
    edges: AbstractEdges
    log_scale: Scalar

    def __init__(
        self,
        edges: Numbers | AbstractEdges,
        scale: Numbers = 1.0,
        *,
        learn_edges: bool = False,
        nodes: int = 20,
    ):
        is_made = isinstance(edges, AbstractEdges)  # by a file
        kind = LearnedEdges if learn_edges else FixedEdges
        self.edges = edges if is_made else kind(edges)
        self.log_scale = as_logs("scale", scale)
        self.nodes = nodes

    @property
    def scale(self) -> Scalar:
        """σ, the standard deviation of the noise on f."""
        return jnp.exp(self.log_scale)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.edges.values().size + 1

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        return self._log_prob(f, self.scale, y)

    def _log_prob(self, f: Scalar, scale: Scalar, y: Target) -> Scalar:
        """log P(y) where f + ε is compared with the edges, and ε has this scale."""
        edges, y = self.edges.values().astype(f.dtype), y.astype(int)
        last = edges.size - 1
        # Far enough out to have no mass beyond, near enough to be squared.
        end = 1e10
        low = (edges[jnp.clip(y - 1, 0, last)] - f) / scale
        high = (edges[jnp.clip(y, 0, last)] - f) / scale
        return log_ndtr_difference(
            jnp.where(y > 0, low, -end), jnp.where(y > last, end, high)
        )

    def log_predictive(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        return self._log_prob(mean, jnp.sqrt(var + self.scale**2), y)

    def probabilities(self, mean: Scalar, var: Scalar) -> Float[Array, " K"]:
        log_prob = lambda y: self.log_predictive(mean, var, y)
        return jnp.exp(jax.vmap(log_prob)(jnp.arange(self.classes)))

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        probabilities = self.probabilities(mean, var)
        labels = jnp.arange(self.classes).astype(mean.dtype)
        centre = probabilities @ labels
        return centre, probabilities @ (labels - centre) ** 2

    def predictive_cdf(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        y = jnp.floor(y.astype(mean.dtype))
        edges = self.edges.values().astype(mean.dtype)
        edge = edges[jnp.clip(y, 0, edges.size - 1).astype(int)]
        below = ndtr((edge - mean) / jnp.sqrt(var + self.scale**2))
        return jnp.where(y < 0, 0, jnp.where(y < edges.size, below, 1))

    def quantile(self, mean: Scalar, var: Scalar, level: Scalar) -> Scalar:
        edges = self.edges.values().astype(mean.dtype)
        below = log_ndtr((edges - mean) / jnp.sqrt(var + self.scale**2))
        return (below < jnp.log(level)).sum().astype(mean.dtype)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        noisy = f + self.scale * jax.random.normal(key, (), f.dtype)
        return (noisy > self.edges.values().astype(f.dtype)).sum().astype(f.dtype)


class Poisson(AbstractQuadrature):
    """A count with mean exp(f).

    >>> likelihood = gp.likelihoods.Poisson()
    >>> mean, variance = likelihood.moments(jnp.array(1.0), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.2f}")
    2.86 3.72
    """

    support, link = Support.COUNT, "log"
    parameters = ()

    @property
    def how(self) -> str:
        return "closed form"

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        return self.expected_log_prob(f, jnp.zeros_like(f), y)

    def expected_log_prob(self, mean: Scalar, var: Scalar, y: Target) -> Scalar:
        y = y.astype(mean.dtype)
        return y * mean - jnp.exp(mean + var / 2) - gammaln(y + 1)

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.exp(f), jnp.exp(f)

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        rate = jnp.exp(mean + var / 2)
        return rate, rate + rate**2 * jnp.expm1(var)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        # Beyond this rate the probability of any count that is looked for is zero.
        rate = jnp.exp(jnp.minimum(f, jnp.log(jnp.finfo(f.dtype).max) / 2))
        y = jnp.floor(y.astype(f.dtype))
        return jnp.where(y < 0, 0, gammaincc(jnp.maximum(y, 0) + 1, rate))

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return special.gammaincc(y + 1, np.exp(np.minimum(f, 350)))

    def log_tails(self, f: Scalar, y: Target) -> tuple[Scalar, Scalar]:
        above, below = log_gamma_tails(jnp.floor(y.astype(f.dtype)) + 1, f)
        return below, above

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        return jax.random.poisson(key, jnp.exp(f), ()).astype(f.dtype)


DISPERSION = Parameter("log_dispersion", "dispersion", "dispersion")


class NegativeBinomial(AbstractQuadrature):
    """A count with mean m = exp(f) and variance m + a m², of dispersion a.

    >>> likelihood = gp.likelihoods.NegativeBinomial(0.5)
    >>> mean, variance = likelihood.moments(jnp.array(1.0), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.2f}")
    2.86 8.23
    """

    support, link = Support.COUNT, "log"
    parameters = (DISPERSION,)
    log_dispersion: Scalar

    def __init__(self, dispersion: Numbers = 1.0, *, nodes: int = 20):
        self.log_dispersion = as_logs("dispersion", dispersion)
        self.nodes = nodes

    @property
    def dispersion(self) -> Scalar:
        """a; at 0 it would be a Poisson distribution."""
        return jnp.exp(self.log_dispersion)

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        y = y.astype(f.dtype)
        size = jnp.exp(-self.log_dispersion)
        logit = f + self.log_dispersion
        constant = log_rising(size, y) - gammaln(y + 1)
        return constant - size * softplus(logit) - y * softplus(-logit)

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        return jnp.exp(f), jnp.exp(f) + self.dispersion * jnp.exp(2 * f)

    def moments(self, mean: Scalar, var: Scalar) -> tuple[Scalar, Scalar]:
        rate = jnp.exp(mean + var / 2)
        ratio = jnp.expm1(var) + self.dispersion * jnp.exp(var)
        return rate, rate + rate**2 * ratio

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        success = jnp.exp(log_sigmoid(-f - self.log_dispersion))
        y = jnp.floor(y.astype(f.dtype))
        size = jnp.exp(-self.log_dispersion)
        return jnp.where(y < 0, 0, betainc(size, jnp.maximum(y, 0) + 1, success))

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        log_dispersion = float(self.log_dispersion)
        success = special.expit(-f - log_dispersion)
        return special.betainc(math.exp(-log_dispersion), y + 1, success)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        first, second = jax.random.split(key)
        size = jnp.exp(-self.log_dispersion)
        log_rate = f + self.log_dispersion
        log_rate += jax.random.loggamma(first, size, (), f.dtype)
        return jax.random.poisson(second, jnp.exp(log_rate), ()).astype(f.dtype)


class Binomial(AbstractQuadrature):
    """y successes of n trials, each with probability Φ(f), or logistic in f.

    The column `trials` is n, and without it n is 1. `link="logit"` is the logistic one.

    >>> likelihood = gp.likelihoods.Binomial().given(trials=jnp.array(20.0))
    >>> mean, variance = likelihood.moments(jnp.array(0.5), jnp.array(0.1))
    >>> print(f"{mean:.2f} {variance:.2f}")
    13.66 8.76
    """

    support = Support.SUCCESSES
    parameters = ()
    link: str = eqx.field(static=True, default="probit")
    trials: Float[Array, "..."] | None = column()

    def __check_init__(self):
        require_link(self.link)

    def _trials(self, like: Scalar) -> Scalar:
        return jnp.ones_like(like) if self.trials is None else self.trials

    def _log_chances(self, f: Scalar) -> tuple[Scalar, Scalar]:
        """The logarithms of the probabilities of a success and of a failure."""
        log_chance = log_ndtr if self.link == "probit" else log_sigmoid
        return log_chance(f), log_chance(-f)

    def log_prob(self, f: Scalar, y: Target) -> Scalar:
        y, trials = y.astype(f.dtype), self._trials(f)
        # Of none there is nothing to add, whatever the logarithm.
        success, _ = self._log_chances(jnp.where(y > 0, f, 0))
        _, failure = self._log_chances(jnp.where(y < trials, f, 0))
        few = jnp.minimum(y, trials - y)
        ways = log_rising(trials - few + 1, few) - gammaln(few + 1)
        return ways + y * success + (trials - y) * failure

    def conditional_moments(self, f: Scalar) -> tuple[Scalar, Scalar]:
        success, failure = self._log_chances(f)
        trials = self._trials(f)
        return trials * jnp.exp(success), trials * jnp.exp(success + failure)

    def cdf(self, f: Scalar, y: Target) -> Scalar:
        trials, y = self._trials(f), jnp.floor(y.astype(f.dtype))
        inside = jnp.clip(y, 0, trials - 1)
        failure = jnp.exp(self._log_chances(f)[1])
        below = betainc(trials - inside, inside + 1, failure)
        return jnp.where(y < 0, 0, jnp.where(y < trials, below, 1))

    def _scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        trials = np.ones_like(f) if self.trials is None else np.asarray(self.trials)
        successes, failures = (np.maximum(n, TINY) for n in (y + 1, trials - y))
        below = special.betainc(failures, successes, scipy_link(self.link)(-f))
        return np.where(y < trials, below, 1)

    def sample(self, key: PRNGKeyArray, f: Scalar) -> Scalar:
        chance = jnp.exp(self._log_chances(f)[0])
        return jax.random.binomial(key, self._trials(f), chance, (), f.dtype)

    def check(self, y: np.ndarray) -> None:
        super().check(y)
        if self.trials is None:
            require(y <= 1, y, "Binomial without the column 'trials' needs 0 or 1")
            return
        trials = np.broadcast_to(np.asarray(self.trials), np.shape(y))
        is_good = np.isfinite(trials) & (trials >= 1) & (np.floor(trials) == trials)
        require(is_good, trials, "trials should be 1, 2, 3, ...", "numbers")
        require(y <= trials, y, "successes should be at most the trials of their row")


def log_rising(x: Scalar, y: Scalar) -> Scalar:
    """log Γ(x + y) − log Γ(x), for x > 0 and y ≥ 0."""
    # Where x is large the difference is all rounding, and Stirling's series is exact.
    small, large = jnp.minimum(x, 30.0), jnp.maximum(x, 30.0)
    rest = lambda x: (1 / 12 - (1 / 360 - 1 / (1260 * x**2)) / x**2) / x
    main = (large + y - 0.5) * jnp.log1p(y / large) + y * (jnp.log(large) - 1)
    series = main + (rest(large + y) - rest(large))
    return jnp.where(x > 30, series, gammaln(small + y) - gammaln(small))
