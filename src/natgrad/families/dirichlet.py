"""Dirichlet distributions: Concentrations, MeanTotal."""

import abc

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import family
from natgrad.families._implicit import AbstractImplicit
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["Concentrations", "MeanTotal"]


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch K"]


@family()
class AbstractDirichlet(AbstractImplicit[Vector]):
    """q(u) ∝ ∏ uₖ^(αₖ − 1) on the simplex, in which θ = α − 1 and T(u) = log u."""

    @abc.abstractmethod
    def concentrations(self) -> Vector:
        """α"""

    def natural(self) -> Vector:
        return self.concentrations() - 1

    def log_normalizer(self, theta: Vector) -> Scalar:
        alpha = positive_part(theta + 1)
        return gammaln(alpha).sum(-1) - gammaln(alpha.sum(-1))

    def statistics(self, u: Float[Array, "... K"]) -> Float[Array, "... K"]:
        return jnp.log(u)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        alpha = self.concentrations()
        return jax.random.dirichlet(key, alpha, shape + alpha.shape[:-1], alpha.dtype)


class Concentrations(AbstractDirichlet):
    """A Dirichlet distribution in the coordinates α.

    >>> from natgrad.families import dirichlet
    >>> q = dirichlet.Concentrations(Log(jnp.zeros(3)))  # uniform
    >>> print(f"{q.log_prob(jnp.array([0.2, 0.3, 0.5])):.2f}")
    0.69
    """

    concentration: AbstractPositive

    def concentrations(self) -> Vector:
        return self.concentration.value()

    def at_natural(self, theta: Vector) -> "Concentrations":
        return Concentrations(self.concentration.at(theta + 1))


class MeanTotal(AbstractDirichlet):
    """A Dirichlet distribution in the log-odds of its mean and the total Σα.

    The log-odds are those against the last part.

    >>> from natgrad.families import dirichlet
    >>> q = dirichlet.MeanTotal(jnp.zeros(2), Log(jnp.log(6.0)))
    >>> print(q.concentrations())
    [2. 2. 2.]
    """

    logits: Float[Array, "*batch J"]
    total: AbstractPositive

    def concentrations(self) -> Vector:
        last = jnp.zeros((*self.logits.shape[:-1], 1), self.logits.dtype)
        mean = jax.nn.softmax(jnp.concatenate([self.logits, last], -1))
        return self.total.value()[..., None] * mean

    def at_natural(self, theta: Vector) -> "MeanTotal":
        log_alpha = jnp.log(theta + 1)
        total = self.total.at((theta + 1).sum(-1))
        return MeanTotal(log_alpha[..., :-1] - log_alpha[..., -1:], total)
