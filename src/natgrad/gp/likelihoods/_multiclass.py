"""Classes without order, one latent function each: RobustMax, Softmax."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import log_softmax, softmax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad._normal import hazard, ndtr
from natgrad._quadrature import deviation, gauss_hermite, spread
from natgrad.errors import InputError
from natgrad.gp.likelihoods._base import (
    PREDICTIVE_NODES,
    AbstractLikelihood,
    AbstractMonteCarlo,
    Scalar,
    Target,
)
from natgrad.gp.likelihoods._support import Support


Latents = Float[Array, " K"]
Label = Int[Array, ""]


class AbstractClasses(AbstractLikelihood):
    """Labels 0, 1, ..., with a latent function for each class."""

    support = Support.LABELS
    classes: eqx.AbstractVar[int]

    @classmethod
    def initial(cls, classes: int) -> "AbstractClasses":
        return cls(classes)

    def __check_init__(self):
        if self.classes < 2:
            raise InputError(f"classes is {self.classes}; it should be 2 or more")

    @property
    def latents(self) -> int:
        return self.classes


class RobustMax(AbstractClasses):
    """y is the class of the largest latent with probability 1 − ε, else another one.

    The other classes are equally likely. Only the probability that a class has the
    largest latent is an integral, over a single latent. ε is `error`.

    >>> likelihood = gp.likelihoods.RobustMax(3, error=0.1)
    >>> mean, var = jnp.array([2.0, 0.0, 0.0]), jnp.full(3, 0.1)
    >>> print(likelihood.probabilities(mean, var).round(2))
    [0.9  0.05 0.05]
    """

    classes: int = eqx.field(static=True)
    error: float = eqx.field(static=True, default=1e-3)
    nodes: int = eqx.field(static=True, default=20, kw_only=True)

    def __check_init__(self):
        if not 0 < self.error < 1:
            raise InputError(f"error is {self.error}; it should be between 0 and 1")

    @property
    def how(self) -> str:
        return f"Gauss–Hermite, {self.nodes} points"

    @property
    def _hit(self) -> float:
        return 1 - self.error

    @property
    def _miss(self) -> float:
        return self.error / (self.classes - 1)

    def log_prob(self, f: Latents, y: Target) -> Scalar:
        hit = jnp.argmax(f) == y.astype(int)
        return jnp.where(hit, math.log(self._hit), math.log(self._miss)).astype(f.dtype)

    def expected_log_prob(self, mean: Latents, var: Latents, y: Target) -> Scalar:
        wins = win_probability(self.nodes, mean, var, y.astype(int))
        gain = math.log(self._hit) - math.log(self._miss)
        return gain * wins + math.log(self._miss)

    def log_predictive(self, mean: Latents, var: Latents, y: Target) -> Scalar:
        return jnp.log(self.probabilities(mean, var)[y.astype(int)])

    def probabilities(self, mean: Latents, var: Latents) -> Latents:
        # One class at a time, or memory grows with their square.
        wins = lax.map(
            lambda y: win_probability(PREDICTIVE_NODES, mean, var, y),
            jnp.arange(self.classes),
        )
        # One of them wins, whatever is lost to the quadrature.
        return self._miss + (self._hit - self._miss) * wins / wins.sum()

    def moments(self, mean: Latents, var: Latents) -> tuple[Scalar, Scalar]:
        raise self._lacks("moments", "an order of its classes")

    def sample(self, key: PRNGKeyArray, f: Latents) -> Scalar:
        hit = jnp.arange(self.classes) == jnp.argmax(f)
        logits = jnp.where(hit, math.log(self._hit), math.log(self._miss))
        return jax.random.categorical(key, logits).astype(f.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def win_probability(nodes: int, mean: Latents, var: Latents, y: Label) -> Scalar:
    """P(f_y is the largest), the integral of ∏ⱼ Φ((f_y − μⱼ)/σⱼ) over f_y."""
    weighted, *_ = _at_nodes(nodes, mean, deviation(var), y)
    return weighted.sum()


@win_probability.defjvp
def _win_probability_jvp(nodes, primals, tangents):
    # By hand, as one Mills ratio and one exponential give both a factor and its slope.
    mean, var, y = primals
    dmean, dvar, _ = tangents
    root = deviation(var)
    own = jnp.arange(mean.size) == y
    weighted, distance, points = _at_nodes(nodes, mean, root, y)
    slope = hazard(distance)
    # As products of matrices, which on a CPU are faster than sums.
    product = functools.partial(jnp.matmul, precision="highest")
    of_winner = weighted * product(slope, 1 / root)
    of_mean = -product(weighted, slope) / root
    of_root = -product(weighted, slope * distance) / root
    of_mean = jnp.where(own, of_winner.sum(), of_mean)
    of_root = jnp.where(own, (of_winner * points).sum(), of_root)
    tangent = (of_mean * dmean + of_root / (2 * root) * dvar).sum()
    return weighted.sum(), tangent


def _at_nodes(nodes: int, mean: Latents, root: Latents, y: Label):
    """The weighted products, (f_y − μⱼ)/σⱼ, and the points, at the nodes of f_y."""
    points, log_weights = gauss_hermite(nodes)
    points = jnp.asarray(points, mean.dtype)
    weights = jnp.asarray(np.exp(log_weights), mean.dtype)
    own = jnp.arange(mean.size) == y
    at_own = lambda x: jnp.where(own, x, 0.0).sum()
    winner = at_own(mean) + at_own(root) * points
    distance = (winner[:, None] - mean[None, :]) * (1 / root)[None, :]
    # A class is far above itself: there Φ is one, and its slope zero.
    distance = jnp.where(own[None, :], 1e3, distance)
    return weights * ndtr(distance).prod(1), distance, points


class Softmax(AbstractClasses, AbstractMonteCarlo):
    """P(y = k | f) = exp(f_k) / Σⱼ exp(f_j), with a latent function for each class.

    >>> likelihood = gp.likelihoods.Softmax(3)
    >>> f = jnp.array([2.0, 0.0, 0.0])
    >>> print(f"{likelihood.log_prob(f, jnp.array(0)):.2f}")
    -0.24
    """

    classes: int = eqx.field(static=True)

    def log_prob(self, f: Latents, y: Target) -> Scalar:
        own = jnp.arange(self.classes) == y.astype(int)
        log_prob = jnp.where(own, log_softmax(f), 0.0).sum()
        return jnp.where(own.any(), log_prob, jnp.nan)

    def probabilities(self, mean: Latents, var: Latents) -> Latents:
        points, log_weights = self.predictive_rule()
        weights = jnp.asarray(np.exp(log_weights), mean.dtype)
        return weights @ softmax(spread(mean, var, points))

    def sample(self, key: PRNGKeyArray, f: Latents) -> Scalar:
        return jax.random.categorical(key, f).astype(f.dtype)
