"""What a likelihood is, and what follows from its density alone."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Num, PRNGKeyArray
from scipy import special

from natgrad._quadrature import common_draws, gauss_hermite, spread
from natgrad.errors import InputError
from natgrad.gp.likelihoods._support import Parameter, Support, quantile


Scalar = Float[Array, ""]
Latent = Float[Array, "*L"]
Target = Num[Array, ""]
Rule = tuple[np.ndarray, np.ndarray]  # points of N(0, I), logarithms of their weights

# Prediction is not in the training loop, and p(y | f) is often narrower than q(f).
PREDICTIVE_NODES = 200
PREDICTIVE_DRAWS = 1024


def column() -> Any:
    """A field of a likelihood for a number that comes with a target.

    It is None until a row has one. Model files leave it out.

    >>> class Scaled(gp.likelihoods.AbstractQuadrature):
    ...     size: jax.Array | None = gp.likelihoods.column()
    ...
    ...     def log_prob(self, f, y):
    ...         size = 1.0 if self.size is None else self.size
    ...         return -0.5 * (y / size - f) ** 2 - jnp.log(size)
    >>> Scaled().columns
    ('size',)
    """
    none, metadata = lambda: None, {"is_column": True}
    return eqx.field(default_factory=none, init=False, metadata=metadata)


def is_column(field: dataclasses.Field) -> bool:
    """Whether a field is for a number that comes with a target."""
    return field.metadata.get("is_column", False)


class AbstractLikelihood(eqx.Module):
    """p(y | f) of one row, and its averages over f ~ N(mean, var).

    A likelihood with one latent function takes a scalar f. A likelihood with several
    takes a vector, independent under q. With several outputs y is a vector, and so is
    each prediction.
    """

    support = Support.REAL
    """Where y lives."""

    link = ""
    """How f becomes the mean of y or its scale, if estimators should know it.

    It is "identity", "log", "logit" or "probit".
    """

    parameters: ClassVar[tuple[Parameter, ...] | None] = None
    """What is learned besides f. Without it an estimator leaves targets as they are."""

    @classmethod
    def initial(cls, classes: int) -> "AbstractLikelihood":
        """The likelihood that an estimator begins with, for so many classes if any."""
        return cls()

    @property
    def observed(self) -> "AbstractLikelihood":
        """The likelihood of targets that were observed."""
        return self

    @property
    def is_location(self) -> bool:
        """Whether a number that is added to y is one that is added to f."""
        return self.link == "identity"

    @property
    def has_exposure(self) -> bool:
        """Whether y is proportional to exp(f), so that an exposure multiplies it."""
        return self.link == "log"

    @property
    def has_scale(self) -> bool:
        """Whether y in other units is of the same likelihood."""
        return self.is_location or (self.has_exposure and not self.support.is_whole)

    def in_units(self, scale: float) -> "AbstractLikelihood":
        """The same likelihood for targets that are divided by a scale."""
        likelihood = self
        for field, *_, power in self.parameters or ():
            if power:
                value = getattr(self, field) - power * math.log(scale)
                where = lambda tree, name=field: getattr(tree, name)
                likelihood = eqx.tree_at(where, likelihood, value)
        return likelihood

    def summary(self, scale: float) -> list[tuple[str, float]]:
        """Labels and values of the parameters, of targets in units of a scale."""
        return [
            (label.format(self), float(getattr(self, shown)) * (scale if power else 1))
            for _, shown, label, power in self.parameters or ()
        ]

    def start(self, mean: float) -> float:
        """The latent function at which y has a mean, roughly."""
        if self.link == "log":
            return math.log(max(mean, 1e-3))
        share = min(max(mean, 1e-6), 1 - 1e-6)
        if self.link == "logit":
            return math.log(share / (1 - share))
        return float(special.ndtri(share))

    @property
    def log_noise(self) -> Scalar | None:
        """The logarithm of the scale of y about f, if it is a parameter."""
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """Numbers that may come with a target: the fields that are a `column()`."""
        return tuple(each.name for each in dataclasses.fields(self) if is_column(each))

    @property
    def latents(self) -> int | None:
        """The number of latent functions; None if f is a scalar."""
        return None

    @property
    def points(self) -> int:
        """The number of points of f at which a prediction of one row is evaluated."""
        return PREDICTIVE_NODES

    @property
    def how(self) -> str:
        """How `expected_log_prob` is computed."""
        return "closed form"

    @property
    def outputs(self) -> int | None:
        """How many numbers a target has; None if it is a scalar."""
        return None

    def given(self, **columns: Any) -> Any:
        """The likelihood of a row with which these numbers come."""
        if not columns:
            return self
        fields = lambda tree: [getattr(tree, name) for name in columns]
        is_leaf = lambda leaf: leaf is None
        return eqx.tree_at(fields, self, [*columns.values()], is_leaf=is_leaf)

    def site(self, y: Target) -> tuple[Scalar, Scalar] | None:
        """λ and Λ if p(y | f) is exp(λ f − Λ f²/2) but for a constant; else None."""
        return None

    @abc.abstractmethod
    def log_prob(self, f: Latent, y: Target) -> Scalar:
        """log p(y | f)"""

    @abc.abstractmethod
    def expected_log_prob(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        """E[log p(y | f)]"""

    @abc.abstractmethod
    def log_predictive(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        """log E[p(y | f)]"""

    @abc.abstractmethod
    def moments(self, mean: Latent, var: Latent) -> tuple[Scalar, Scalar]:
        """The mean and the variance of y."""

    def quantile(self, mean: Latent, var: Latent, level: Scalar) -> Scalar:
        """The smallest y that is not exceeded with probability `level`."""
        raise self._lacks("quantiles", "cdf(f, y)")

    def predictive_cdf(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        """The probability of at most y."""
        raise self._lacks("distribution function", "an order of its targets")

    def log_tails(self, f: Latent, y: Target) -> tuple[Scalar, Scalar]:
        """The logarithms of the probabilities of at most y, and of more, given f.

        `Censored` needs them, each with its digits where it is small.
        """
        raise self._lacks("probabilities of an interval", "log_tails(f, y)")

    def probabilities(self, mean: Latent, var: Latent) -> Float[Array, " K"]:
        """P(y = k) for every class k."""
        raise self._lacks("classes", "probabilities(mean, var)")

    def sample(self, key: PRNGKeyArray, f: Latent) -> Target:
        """One y given f."""
        raise self._lacks("samples", "sample(key, f)")

    def check(self, y: np.ndarray) -> None:
        """Raises an `InputError` if the likelihood does not allow a target."""
        name, classes = type(self).__name__, getattr(self, "classes", None)
        if classes is None:
            require(self.support.allows(y), y, f"{name} needs {self.support.needs}")
        else:
            good = (y >= 0) & (y < classes) & (np.floor(y) == y)
            require(good, y, f"{name} needs labels 0 to {classes - 1}")

    def _lacks(self, what: str, method: str) -> NotImplementedError:
        name = type(self).__name__
        return NotImplementedError(f"{name} has no {what}; it would need {method}")


class AbstractNumerical(AbstractLikelihood):
    """A likelihood defined by its density, averaged over points of N(0, I).

    Two optional methods describe p(y | f) further: `conditional_moments` returns the
    moments of y, and `cdf`, with the support of y, gives its quantiles.
    """

    nodes = 20
    """Points of quadrature, if f is a scalar."""

    draws, seed = 128, 0
    """How many draws, and of which seed, if f is a vector."""

    @property
    def how(self) -> str:
        if self.latents is None:
            return f"Gauss–Hermite, {self.nodes} points"
        return f"Monte Carlo, {self.draws} common draws"

    def rule(self) -> Rule:
        """For training."""
        return self._rule(self.nodes, self.draws)

    def predictive_rule(self) -> Rule:
        """For prediction."""
        nodes, draws = PREDICTIVE_NODES, PREDICTIVE_DRAWS
        return self._rule(max(self.nodes, nodes), max(self.draws, draws))

    def _rule(self, nodes: int, draws: int) -> Rule:
        if self.latents is None:
            return gauss_hermite(nodes)
        return common_draws(draws, self.latents, self.seed)

    @property
    def points(self) -> int:
        return len(self.predictive_rule()[1])

    def conditional_moments(self, f: Latent) -> tuple[Scalar, Scalar]:
        """The mean and the variance of y given f."""
        raise self._lacks("moments", "conditional_moments(f)")

    def cdf(self, f: Latent, y: Target) -> Scalar:
        """The probability of at most y, given f."""
        raise self._lacks("quantiles", "cdf(f, y)")

    def log_tails(self, f: Latent, y: Target) -> tuple[Scalar, Scalar]:
        # What a distribution function cannot tell from 1 counts as half its rounding.
        below, limits = self.cdf(f, y), jnp.finfo(f.dtype)
        log_below = jnp.log(jnp.maximum(below, limits.tiny))
        return log_below, jnp.log1p(-jnp.minimum(below, 1 - limits.epsneg))

    def expected_log_prob(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        return expectation(lambda f: self.log_prob(f, y), mean, var, self.rule())

    def log_predictive(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        points, log_weights = self.predictive_rule()
        log_probs = jax.vmap(lambda f: self.log_prob(f, y))(spread(mean, var, points))
        return log_sum_exp(log_probs + jnp.asarray(log_weights, log_probs.dtype))

    def moments(self, mean: Latent, var: Latent) -> tuple[Scalar, Scalar]:
        rule = self.predictive_rule()
        centre = expectation(lambda f: self.conditional_moments(f)[0], mean, var, rule)

        def square(f: Latent) -> Scalar:
            mean, var = self.conditional_moments(f)
            return var + (mean - centre) ** 2

        return centre, expectation(square, mean, var, rule)

    def predictive_cdf(self, mean: Latent, var: Latent, y: Target) -> Scalar:
        return expectation(lambda f: self.cdf(f, y), mean, var, self.predictive_rule())

    def quantile(self, mean: Latent, var: Latent, level: Scalar) -> Scalar:
        cdf = lambda y: self.predictive_cdf(mean, var, y)
        return quantile(cdf, level, self.support, mean.reshape(-1)[0])


class AbstractQuadrature(AbstractNumerical):
    """A likelihood of one latent function, averaged by Gauss–Hermite quadrature."""

    nodes: int = eqx.field(static=True, default=20, kw_only=True)


class AbstractMonteCarlo(AbstractNumerical):
    """A likelihood of several latent functions, averaged over common random numbers.

    The draws come from a fixed seed, so the average is a smooth function, the same at
    every step.
    """

    draws: int = eqx.field(static=True, default=128, kw_only=True)
    seed: int = eqx.field(static=True, default=0, kw_only=True)

    @property
    @abc.abstractmethod
    def latents(self) -> int:
        """The number of latent functions."""


def expectation(
    function: Callable[[Latent], Scalar], mean: Latent, var: Latent, rule: Rule
) -> Scalar:
    """E[function(f)] for f ~ N(mean, var)."""
    points, log_weights = rule
    values = jax.vmap(function)(spread(mean, var, points))
    if values.ndim != 1:
        raise InputError(
            f"log p(y | f) of one row has shape {list(values.shape[1:])}; it should be "
            "one number"
        )
    return jnp.sum(values * jnp.asarray(np.exp(log_weights), values.dtype))


def log_sum_exp(values: Float[Array, " K"]) -> Scalar:
    """log Σ exp, finite wherever the largest value is."""
    peak = lax.stop_gradient(values.max())
    is_held = jnp.isfinite(peak)
    shift = jnp.where(is_held, peak, 0)
    gaps = values - shift
    # XLA may compute the values twice and round them differently, and a unit in the
    # last place of a large one is a large gap. Of the true gaps none is positive.
    total = jnp.exp(jnp.where(gaps > 0, 0, gaps)).sum()
    least = float(jnp.finfo(values.dtype).tiny)
    return shift + jnp.log(jnp.where(is_held & (total < least), least, total))


def require(good: np.ndarray, y: np.ndarray, rule: str, what: str = "targets") -> None:
    """Raises an InputError that says how many targets break a rule, and which first."""
    bad = np.flatnonzero(~np.asarray(good))
    if bad.size:
        raise InputError(
            f"{rule}; {bad.size} of {np.size(y)} {what} are not, "
            f"the first in row {bad[0]}: {np.ravel(y)[bad[0]]}"
        )


TINY = np.finfo(float).tiny


def scipy_link(link: str) -> Callable[[np.ndarray], np.ndarray]:
    """The mean of f by a link, of arrays."""
    return special.expit if link == "logit" else special.ndtr


def require_link(link: str) -> None:
    """Raises an InputError unless a link is one of the two there are."""
    if link not in ("probit", "logit"):
        raise InputError(f"link is {link!r}; it should be 'probit' or 'logit'")
