"""Successes out of some trials."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import special

from natgrad._normal import log_ndtr
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
from natgrad.gp.likelihoods._discrete import log_rising
from natgrad.gp.likelihoods._support import Support


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

    def scipy_cdf(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
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
