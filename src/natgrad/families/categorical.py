"""Categorical distributions: Logits, Probabilities."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from natgrad.families.base import AbstractDistribution


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch J"]


class AbstractCategorical(AbstractDistribution[Vector]):
    """K = J + 1 classes; T(u) has a one for each class but the last, which is the reference.

    θₖ = log(pₖ/p_K) and ηₖ = pₖ, so θ(η) has a closed form.
    """

    @abc.abstractmethod
    def log_probabilities(self) -> Float[Array, "*batch K"]:
        """The logarithms of all K probabilities."""

    def natural(self) -> Vector:
        log_p = self.log_probabilities()
        return log_p[..., :-1] - log_p[..., -1:]

    def expectation(self) -> Vector:
        return jnp.exp(self.log_probabilities()[..., :-1])

    def log_normalizer(self, theta: Vector) -> Scalar:
        return jax.nn.logsumexp(_with_reference(theta), -1)

    def statistics(self, u: Int[Array, "..."]) -> Float[Array, "... J"]:
        log_p = self.log_probabilities()
        return jax.nn.one_hot(u, log_p.shape[-1] - 1, dtype=log_p.dtype)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        log_p = self.log_probabilities()
        return jax.random.categorical(key, log_p, shape=shape + log_p.shape[:-1])


class Logits(AbstractCategorical):
    """Coordinates log(pₖ/p_K), for all classes but the last."""

    logits: Vector

    def log_probabilities(self) -> Float[Array, "*batch K"]:
        return jax.nn.log_softmax(_with_reference(self.logits))

    def at_natural(self, theta: Vector) -> "Logits":
        return Logits(theta)

    def at_expectation(self, eta: Vector) -> "Logits":
        return Logits(jnp.log(eta) - jnp.log1p(-eta.sum(-1, keepdims=True)))


class Probabilities(AbstractCategorical):
    """Coordinates pₖ, for all classes but the last."""

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
