"""Gaussians with diagonal covariance: Moments, Canonical."""

import abc
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import AbstractDistribution, family
from natgrad.families.gaussian import kl_from_factors
from natgrad.linalg._triangular import Columns, Matrix
from natgrad.positive import AbstractPositive


__all__ = ["Moments", "Canonical"]


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch M"]


class Statistics(NamedTuple):
    """The shape of T(u) = (u, u²), and so of θ and η."""

    first: Float[Array, "*batch M"]
    second: Float[Array, "*batch M"]


@family(Statistics)
class AbstractDiagonal(AbstractDistribution[Statistics]):
    """N(m, diag v), in which θ = (m/v, −1/(2v)) and η = (m, v + m²).

    Slopes are centred, as those of the full Gaussian: ∂L/∂η is (∂L/∂m, ∂L/∂v).
    """

    @abc.abstractmethod
    def location(self) -> Vector:
        """m"""

    @abc.abstractmethod
    def variances(self) -> Vector:
        """v"""

    def natural(self) -> Statistics:
        precision = 1 / self.variances()
        return Statistics(self.location() * precision, -precision / 2)

    def expectation(self) -> Statistics:
        return Statistics(self.location(), self.variances() + self.location() ** 2)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        precision = -2 * theta.second
        terms = theta.first**2 / precision - jnp.log(precision) + math.log(2 * math.pi)
        return terms.sum(-1) / 2

    def statistics(self, u: Vector) -> Statistics:
        return Statistics(u, u**2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        mean, scale = self.location(), jnp.sqrt(self.variances())
        noise = jax.random.normal(key, shape + mean.shape, mean.dtype)
        mean, scale, noise = jnp.broadcast_arrays(mean, scale, noise)
        return mean + scale * noise

    def log_prob(self, u: Array) -> Float[Array, "..."]:
        u, mean, variances = jnp.broadcast_arrays(u, self.location(), self.variances())
        terms = (u - mean) ** 2 / variances + jnp.log(2 * math.pi * variances)
        return -terms.sum(-1) / 2

    def entropy(self) -> Scalar:
        return (jnp.log(2 * math.pi * self.variances()) + 1).sum(-1) / 2

    # What a full Gaussian has too, so that each has a divergence to the other.

    def factor(self) -> Matrix:
        """A factor of the covariance."""
        root = jnp.sqrt(self.variances())
        return root[..., None] * eye_of(root)

    def whiten(self, columns: Columns) -> Columns:
        """x divided by the standard deviations."""
        return columns / jnp.sqrt(self.variances())[..., None]

    def log_det(self) -> Scalar:
        """The logarithm of the determinant of the covariance."""
        return jnp.log(self.variances()).sum(-1)

    def kl(self, other: Any) -> Scalar:
        """KL(self ‖ other); `other` may be a full Gaussian."""
        if not isinstance(other, AbstractDiagonal):
            return kl_from_factors(self, other)
        ratio = self.variances() / other.variances()
        shift = (self.location() - other.location()) ** 2 / other.variances()
        return (ratio - 1 - jnp.log(ratio) + shift).sum(-1) / 2

    def _variances_at(self, eta: Statistics) -> Vector:
        """v(η) = η₂ − η₁², as a change from the v of `self`."""
        here = self.expectation()
        change = eta.first**2 - here.first**2
        return self.variances() + (eta.second - here.second) - change


class Moments(AbstractDiagonal):
    """A diagonal Gaussian in the coordinates m and v.

    T(u) is (u, u²), in the fields `first` and `second`.

    >>> from natgrad.families import diagonal
    >>> q = diagonal.Moments(jnp.zeros(2), Log(jnp.zeros(2)))
    >>> print(q.variances(), f"{q.entropy():.2f}")
    [1. 1.] 2.84
    """

    mean: Vector
    var: AbstractPositive

    def location(self) -> Vector:
        return self.mean

    def variances(self) -> Vector:
        return self.var.value()

    def at_natural(self, theta: Statistics) -> "Moments":
        variances = -1 / (2 * theta.second)
        return Moments(theta.first * variances, self.var.at(variances))

    def at_expectation(self, eta: Statistics) -> "Moments":
        return Moments(eta.first, self.var.at(self._variances_at(eta)))

    def slope(self, grad: "Moments") -> Statistics:
        return Statistics(grad.mean, self.var.slope(grad.var))

    def direction(self, slope: Statistics) -> "Moments":
        variances = self.variances()
        change = self.var.tangent(2 * variances**2 * slope.second)
        return Moments(variances * slope.first, change)

    def stepped(self, slope: Statistics, size: Float[Array, ""]) -> "Moments":
        precision = 1 / self.variances() + 2 * size * slope.second
        mean = self.mean - size * slope.first / precision
        return Moments(mean, self.var.at(1 / precision))


class Canonical(AbstractDiagonal):
    """A diagonal Gaussian in the coordinates θ₁ = m/v and −θ₂ = 1/(2v).

    >>> from natgrad.families import diagonal
    >>> q = diagonal.Canonical(jnp.ones(2), Log(jnp.log(jnp.full(2, 0.5))))
    >>> print(q.location(), q.variances())
    [1. 1.] [1. 1.]
    """

    linear: Vector
    quadratic: AbstractPositive

    def location(self) -> Vector:
        return self.linear / (2 * self.quadratic.value())

    def variances(self) -> Vector:
        return 1 / (2 * self.quadratic.value())

    def at_natural(self, theta: Statistics) -> "Canonical":
        return Canonical(theta.first, self.quadratic.at(-theta.second))

    def at_expectation(self, eta: Statistics) -> "Canonical":
        precision = 1 / self._variances_at(eta)
        return Canonical(eta.first * precision, self.quadratic.at(precision / 2))

    def slope(self, grad: "Canonical") -> Statistics:
        precision = 2 * self.quadratic.value()
        half = precision * self.quadratic.slope(grad.quadratic) / 2
        first = precision * grad.linear
        return Statistics(first, -precision * half - first * self.linear)

    def direction(self, slope: Statistics) -> "Canonical":
        first, second = self._uncentred(slope)
        return Canonical(first, self.quadratic.tangent(-second))

    def stepped(self, slope: Statistics, size: Float[Array, ""]) -> "Canonical":
        first, second = self._uncentred(slope)
        quadratic = self.quadratic.at(self.quadratic.value() + size * second)
        return Canonical(self.linear - size * first, quadratic)

    def _uncentred(self, slope: Statistics) -> Statistics:
        """∂L/∂η with respect to (u, u²), from that at the centred statistics."""
        change = 2 * slope.second * self.location()
        return Statistics(slope.first - change, slope.second)


def eye_of(vector: Vector) -> Matrix:
    """An identity matrix for each vector of a batch."""
    size = vector.shape[-1]
    return jnp.broadcast_to(jnp.eye(size, dtype=vector.dtype), (*vector.shape, size))
