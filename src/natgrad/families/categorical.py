"""Categorical distributions: Logits, Probabilities."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.families._base import AbstractDistribution, family


__all__ = ["Logits", "Probabilities"]


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch J"]


@family()
class AbstractCategorical(AbstractDistribution[Vector]):
    """K classes, the last of which is the reference: T(u) has a one for each other.

    θₖ = log(pₖ/p_K) and ηₖ = pₖ, so θ(η) has a closed form.
    """

    @abc.abstractmethod
    def log_probabilities(self) -> Float[Array, "*batch K"]:
        """The logarithms of all K probabilities."""

    def probabilities(self) -> Float[Array, "*batch K"]:
        """All K probabilities."""
        return jnp.exp(self.log_probabilities())

    def natural(self) -> Vector:
        log_p = self.log_probabilities()
        return log_p[..., :-1] - log_p[..., -1:]

    def expectation(self) -> Vector:
        return self.probabilities()[..., :-1]

    def log_normalizer(self, theta: Vector) -> Scalar:
        return jax.nn.logsumexp(_with_reference(theta), -1)

    def statistics(self, u: Int[Array, "..."]) -> Float[Array, "... J"]:
        log_p = self.log_probabilities()
        return jax.nn.one_hot(u, log_p.shape[-1] - 1, dtype=log_p.dtype)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        log_p = self.log_probabilities()
        return jax.random.categorical(key, log_p, shape=shape + log_p.shape[:-1])

    def entropy(self) -> Scalar:
        log_p = self.log_probabilities()
        return -(jnp.exp(log_p) * log_p).sum(-1)

    def kl(self, other: "AbstractCategorical") -> Scalar:
        log_p = self.log_probabilities()
        return (jnp.exp(log_p) * (log_p - other.log_probabilities())).sum(-1)


class Logits(AbstractCategorical):
    """A categorical distribution in the coordinates log pₖ + c, for all K classes.

    The constant c has no effect.

    >>> from natgrad.families import categorical
    >>> q = categorical.Logits(jnp.array([1.0, 0.0, 0.0]))
    >>> print(q.probabilities().round(2), f"{q.entropy():.2f}")
    [0.58 0.21 0.21] 0.98
    """

    logits: Float[Array, "*batch K"]

    def log_probabilities(self) -> Float[Array, "*batch K"]:
        return jax.nn.log_softmax(self.logits)

    def at_natural(self, theta: Vector) -> "Logits":
        last = self.logits[..., -1:]
        return Logits(jnp.concatenate([theta + last, last], -1))

    def at_expectation(self, eta: Vector) -> "Logits":
        # 1 − Ση as a change from p_K, which may be too small for the difference.
        log_p = self.log_probabilities()
        log_rest, p = log_p[..., -1:], jnp.exp(log_p[..., :-1])
        change = (eta - p).sum(-1, keepdims=True) / jnp.exp(log_rest)
        return self.at_natural(jnp.log(eta) - log_rest - jnp.log1p(-change))

    def slope(self, grad: "Logits") -> Vector:
        # One class at a time: through p_K = 1 − Σp it is lost where p_K is small.
        p = self.probabilities()
        each = jnp.where(p > 0, grad.logits / jnp.where(p > 0, p, 1), 0)
        return each[..., :-1] - each[..., -1:]


class Probabilities(AbstractCategorical):
    """A categorical distribution in the coordinates pₖ, for all classes but the last.

    >>> from natgrad.families import categorical
    >>> q = categorical.Probabilities(jnp.array([0.5, 0.25]))
    >>> print(q.probabilities(), q.natural().round(2))
    [0.5  0.25 0.25] [0.69 0.  ]
    """

    probs: Vector

    def log_probabilities(self) -> Float[Array, "*batch K"]:
        last = jnp.log1p(-self.probs.sum(-1, keepdims=True))
        return jnp.concatenate([jnp.log(self.probs), last], -1)

    def at_natural(self, theta: Vector) -> "Probabilities":
        return Probabilities(jax.nn.softmax(_with_reference(theta))[..., :-1])

    def at_expectation(self, eta: Vector) -> "Probabilities":
        return Probabilities(eta)


def _with_reference(logits: Vector) -> Float[Array, "*batch K"]:
    reference = jnp.zeros((*logits.shape[:-1], 1), logits.dtype)
    return jnp.concatenate([logits, reference], -1)
