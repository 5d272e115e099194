"""Inverse gamma distributions: ShapeScale, ModeShape."""

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import family
from natgrad.families._implicit import AbstractImplicit
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["ShapeScale", "ModeShape"]


Scalar = Float[Array, "*batch"]


class Statistics(NamedTuple):
    """The shape of T(u) = (log u, 1/u), and so of θ and η."""

    log: Float[Array, "*batch"]
    reciprocal: Float[Array, "*batch"]


@family(Statistics)
class AbstractInverseGamma(AbstractImplicit[Statistics]):
    """q(u) ∝ u^(−shape − 1) exp(−scale / u), in which θ = (−shape − 1, −scale).

    It is the distribution of a variance whose precision 1/u is a gamma, with the scale
    as its rate.
    """

    @abc.abstractmethod
    def shape_scale(self) -> tuple[Scalar, Scalar]:
        """The shape and the scale."""

    def natural(self) -> Statistics:
        shape, scale = self.shape_scale()
        return Statistics(-shape - 1, -scale)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        shape = positive_part(-theta.log - 1)
        scale = positive_part(-theta.reciprocal)
        return gammaln(shape) - shape * jnp.log(scale)

    def statistics(self, u: Float[Array, "..."]) -> Statistics:
        return Statistics(jnp.log(u), 1 / u)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        alpha, scale = self.shape_scale()
        alpha, scale = (jnp.broadcast_to(x, shape + x.shape) for x in (alpha, scale))
        return scale / jax.random.gamma(key, alpha, dtype=alpha.dtype)


class ShapeScale(AbstractInverseGamma):
    """An inverse gamma distribution in the coordinates shape and scale.

    T(u) is (log u, 1/u), in the fields `log` and `reciprocal`.

    >>> from natgrad.families import inverse_gamma
    >>> q = inverse_gamma.ShapeScale(Log(jnp.log(3.0)), Log(jnp.log(2.0)))
    >>> print(f"{q.expectation().reciprocal:.2f} {q.log_prob(jnp.array(1.0)):.2f}")
    1.50 -0.61
    """

    shape: AbstractPositive
    scale: AbstractPositive

    def shape_scale(self) -> tuple[Scalar, Scalar]:
        return self.shape.value(), self.scale.value()

    def at_natural(self, theta: Statistics) -> "ShapeScale":
        shape = self.shape.at(-theta.log - 1)
        return ShapeScale(shape, self.scale.at(-theta.reciprocal))


class ModeShape(AbstractInverseGamma):
    """An inverse gamma distribution in the coordinates mode and shape.

    The mode is scale / (shape + 1). The mean exists only for a shape above 1.

    >>> from natgrad.families import inverse_gamma
    >>> q = inverse_gamma.ModeShape(Log(jnp.log(0.5)), Log(jnp.log(3.0)))
    >>> print(*q.shape_scale())
    3.0 2.0
    """

    mode: AbstractPositive
    shape: AbstractPositive

    def shape_scale(self) -> tuple[Scalar, Scalar]:
        shape = self.shape.value()
        return shape, (shape + 1) * self.mode.value()

    def at_natural(self, theta: Statistics) -> "ModeShape":
        mode = theta.reciprocal / theta.log
        return ModeShape(self.mode.at(mode), self.shape.at(-theta.log - 1))
