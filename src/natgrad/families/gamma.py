"""Gamma distributions: ShapeRate, MeanShape."""

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import family
from natgrad.families._implicit import AbstractImplicit
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["ShapeRate", "MeanShape"]


Scalar = Float[Array, "*batch"]


class Statistics(NamedTuple):
    """The shape of T(u) = (log u, u), and so of θ and η."""

    log: Float[Array, "*batch"]
    value: Float[Array, "*batch"]


@family(Statistics)
class AbstractGamma(AbstractImplicit[Statistics]):
    """q(u) ∝ u^(shape − 1) exp(−rate · u), in which θ = (shape − 1, −rate)."""

    @abc.abstractmethod
    def shape_rate(self) -> tuple[Scalar, Scalar]:
        """The shape and the rate."""

    def natural(self) -> Statistics:
        shape, rate = self.shape_rate()
        return Statistics(shape - 1, -rate)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        shape, rate = positive_part(theta.log + 1), positive_part(-theta.value)
        return gammaln(shape) - shape * jnp.log(rate)

    def statistics(self, u: Float[Array, "..."]) -> Statistics:
        return Statistics(jnp.log(u), u)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        alpha, rate = self.shape_rate()
        alpha, rate = (jnp.broadcast_to(x, shape + x.shape) for x in (alpha, rate))
        return jax.random.gamma(key, alpha, dtype=alpha.dtype) / rate


class ShapeRate(AbstractGamma):
    """A gamma distribution in the coordinates shape and rate.

    T(u) is (log u, u), in the fields `log` and `value`.

    >>> from natgrad.families import gamma
    >>> q = gamma.ShapeRate(Log(jnp.log(3.0)), Log(jnp.log(2.0)))
    >>> print(f"{q.expectation().value:.2f} {q.log_prob(jnp.array(1.0)):.2f}")
    1.50 -0.61
    """

    shape: AbstractPositive
    rate: AbstractPositive

    def shape_rate(self) -> tuple[Scalar, Scalar]:
        return self.shape.value(), self.rate.value()

    def at_natural(self, theta: Statistics) -> "ShapeRate":
        return ShapeRate(self.shape.at(theta.log + 1), self.rate.at(-theta.value))


class MeanShape(AbstractGamma):
    """A gamma distribution in the coordinates mean = shape / rate and shape.

    >>> from natgrad.families import gamma
    >>> q = gamma.MeanShape(Log(jnp.log(1.5)), Log(jnp.log(3.0)))
    >>> print(*q.shape_rate())
    3.0 2.0
    """

    mean: AbstractPositive
    shape: AbstractPositive

    def shape_rate(self) -> tuple[Scalar, Scalar]:
        shape = self.shape.value()
        return shape, shape / self.mean.value()

    def at_natural(self, theta: Statistics) -> "MeanShape":
        shape, rate = theta.log + 1, -theta.value
        return MeanShape(self.mean.at(shape / rate), self.shape.at(shape))
