"""Beta distributions: Concentrations, MeanTotal."""

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import family
from natgrad.families._implicit import AbstractImplicit
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["Concentrations", "MeanTotal"]


Scalar = Float[Array, "*batch"]


class Statistics(NamedTuple):
    """The shape of T(u) = (log u, log(1 − u)), and so of θ and η."""

    log: Float[Array, "*batch"]
    log_rest: Float[Array, "*batch"]


@family(Statistics)
class AbstractBeta(AbstractImplicit[Statistics]):
    """q(u) ∝ u^(a − 1) (1 − u)^(b − 1), in which θ = (a − 1, b − 1)."""

    @abc.abstractmethod
    def a_b(self) -> tuple[Scalar, Scalar]:
        """a and b"""

    def natural(self) -> Statistics:
        a, b = self.a_b()
        return Statistics(a - 1, b - 1)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        a, b = positive_part(theta.log + 1), positive_part(theta.log_rest + 1)
        return gammaln(a) + gammaln(b) - gammaln(a + b)

    def statistics(self, u: Float[Array, "..."]) -> Statistics:
        return Statistics(jnp.log(u), jnp.log1p(-u))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        a, b = self.a_b()
        return jax.random.beta(key, a, b, shape + a.shape, a.dtype)


class Concentrations(AbstractBeta):
    """A beta distribution in the coordinates a and b.

    T(u) is (log u, log(1 − u)), in the fields `log` and `log_rest`.

    >>> from natgrad.families import beta
    >>> q = beta.Concentrations(Log(jnp.log(2.0)), Log(jnp.log(3.0)))
    >>> print(q.log_prob(jnp.array([0.1, 0.5])).round(2))
    [-0.03  0.41]
    """

    a: AbstractPositive
    b: AbstractPositive

    def a_b(self) -> tuple[Scalar, Scalar]:
        return self.a.value(), self.b.value()

    def at_natural(self, theta: Statistics) -> "Concentrations":
        return Concentrations(self.a.at(theta.log + 1), self.b.at(theta.log_rest + 1))


class MeanTotal(AbstractBeta):
    """A beta distribution in the coordinates log(a/b) and a + b.

    log(a/b) are the log-odds of the mean.

    >>> from natgrad.families import beta
    >>> q = beta.MeanTotal(jnp.array(0.0), Log(jnp.log(4.0)))
    >>> print(*q.a_b())
    2.0 2.0
    """

    logit: Scalar
    total: AbstractPositive

    def a_b(self) -> tuple[Scalar, Scalar]:
        total = self.total.value()
        return total * jax.nn.sigmoid(self.logit), total * jax.nn.sigmoid(-self.logit)

    def at_natural(self, theta: Statistics) -> "MeanTotal":
        a, b = theta.log + 1, theta.log_rest + 1
        return MeanTotal(jnp.log(a) - jnp.log(b), self.total.at(a + b))
