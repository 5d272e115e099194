"""Normal-inverse-Wishart distributions over a mean and a covariance: MeanPrecision."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from natgrad.families import wishart
from natgrad.families._base import AbstractDistribution, all_finite, family, inner
from natgrad.linalg._triangular import (
    Scalar,
    Vector,
    inverse_root,
    log_det,
    matvec,
    outer,
    symmetric,
)
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["MeanPrecision"]


class Draw(NamedTuple):
    """A mean μ and a covariance Σ, or as many of both."""

    mean: Float[Array, "... P"]
    covariance: Float[Array, "... P P"]


class Statistics(NamedTuple):
    """The shape of T(μ, Σ) = (log |Σ|, Σ⁻¹, Σ⁻¹μ, μᵀΣ⁻¹μ), and so of θ and η."""

    log_det: Float[Array, "*batch"]
    matrix: Float[Array, "*batch P P"]
    linear: Float[Array, "*batch P"]
    square: Float[Array, "*batch"]


@family(Statistics)
class MeanPrecision(AbstractDistribution[Statistics]):
    """N(μ; m, Σ/κ) times the inverse Wishart distribution of Σ.

    The coordinates are m, κ and those of the Wishart distribution of Σ⁻¹, whose V⁻¹ is
    the scale matrix Ψ of the inverse Wishart and whose ν is its degrees of freedom. So
    `wishart.RateDof` stores Ψ, and `wishart.ScaleDof` stores Ψ⁻¹.

    T(μ, Σ) is (log |Σ|, Σ⁻¹, Σ⁻¹μ, μᵀΣ⁻¹μ), in the fields `log_det`, `matrix`, `linear`
    and `square`, and θ = (−(ν + P + 2)/2, −(Ψ + κmmᵀ)/2, κm, −κ/2). `sample` returns
    draws with the fields `mean` and `covariance`, as `log_prob` takes them. Slopes are
    taken with respect to statistics in which μ − m stands for μ. This changes neither
    the family nor the step, and it keeps all digits however large the mean is.

    >>> from natgrad.families import normal_inverse_wishart, wishart
    >>> precision = wishart.RateDof(Full(jnp.eye(2)), Log(jnp.log(3.0)))
    >>> q = normal_inverse_wishart.MeanPrecision(
    ...     jnp.zeros(2), Log(jnp.log(1.0)), precision
    ... )
    >>> print(f"{q.entropy():.2f} {q.kl(q):.2f}")
    2.68 0.00
    """

    mean: Vector
    strength: AbstractPositive
    precision: wishart.AbstractWishart

    def natural(self) -> Statistics:
        strength = self.strength.value()
        linear = strength[..., None] * self.mean
        log_det, matrix = self.precision.natural()
        return Statistics(
            -log_det - self._offset(),
            matrix - outer(linear, self.mean) / 2,
            linear,
            -strength / 2,
        )

    def expectation(self) -> Statistics:
        log_det, matrix = self.precision.expectation()
        linear = matvec(matrix, self.mean)
        square = self.mean.shape[-1] / self.strength.value()
        return Statistics(
            -log_det, matrix, linear, square + (linear * self.mean).sum(-1)
        )

    def at_natural(self, theta: Statistics) -> "MeanPrecision":
        # From statistics that are centred at m, so that the change from it is exact.
        change = jax.tree.map(jnp.subtract, theta, self.natural())
        linear = change.linear + 2 * change.square[..., None] * self.mean
        across = outer(change.linear + linear, self.mean) / 2
        log_det, matrix = self.precision.natural()
        strength = -2 * theta.square
        shift = linear / strength[..., None]
        at = wishart.Statistics(
            log_det - change.log_det,
            matrix + change.matrix + symmetric(across) + outer(linear, shift) / 2,
        )
        precision = self.precision.at_natural(at)
        return MeanPrecision(self.mean + shift, self.strength.at(strength), precision)

    def at_expectation(self, eta: Statistics) -> "MeanPrecision":
        here = self.expectation()
        change = jax.tree.map(jnp.subtract, eta, here)
        linear = change.linear - matvec(symmetric(change.matrix), self.mean)
        root = inverse_root(eta.matrix)
        shift = matvec(root, matvec(root.mT, linear))
        square = (
            self.mean.shape[-1] / self.strength.value()
            + change.square
            - ((change.linear + linear) * self.mean).sum(-1)
            - (linear * shift).sum(-1)
        )
        strength = self.strength.at(self.mean.shape[-1] / square)
        at = wishart.Statistics(-eta.log_det, eta.matrix)
        precision = self.precision.at_expectation(at)
        return MeanPrecision(self.mean + shift, strength, precision)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        strength = positive_part(-2 * theta.square)
        shift = theta.linear / strength[..., None]
        at = wishart.Statistics(
            -theta.log_det - self._offset(),
            theta.matrix + outer(theta.linear, shift) / 2,
        )
        return self._normalizer(self.precision.log_normalizer(at), strength)

    def statistics(self, u: Draw) -> Statistics:
        root = inverse_root(u.covariance)
        whitened = matvec(root.mT, u.mean)
        return Statistics(
            log_det(u.covariance),
            root @ root.mT,
            matvec(root, whitened),
            (whitened**2).sum(-1),
        )

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Draw:
        wishart_key, normal_key = jax.random.split(key)
        root = inverse_root(self.precision.sample(wishart_key, shape))
        noise = jax.random.normal(normal_key, root.shape[:-1], root.dtype)
        scale = jnp.broadcast_to(1 / jnp.sqrt(self.strength.value()), root.shape[:-2])
        mean = jnp.broadcast_to(self.mean, noise.shape)
        return Draw(mean + scale[..., None] * matvec(root, noise), root @ root.mT)

    def log_prob(self, u: Draw) -> Float[Array, "..."]:
        theta = self.precision.natural()
        normalizer = self._normalizer(
            self.precision.log_normalizer(theta), self.strength.value()
        )
        mean = jnp.subtract(*jnp.broadcast_arrays(u.mean, self.mean))
        centred = self.statistics(Draw(mean, u.covariance))
        natural = Statistics(
            -theta.log_det - self._offset(),
            theta.matrix,
            jnp.zeros_like(self.mean),
            -self.strength.value() / 2,
        )
        product = inner(natural, centred, normalizer)
        return jnp.subtract(*jnp.broadcast_arrays(product, normalizer))

    def entropy(self) -> Scalar:
        # That of Σ⁻¹, its change of volume to Σ, and that of μ given Σ.
        size = self.mean.shape[-1]
        log_det = -self.precision.expectation().log_det
        per_mean = math.log(2 * math.pi) + 1 - jnp.log(self.strength.value())
        volume = (size + 1.5) * log_det
        return self.precision.entropy() + volume + size / 2 * per_mean

    def kl(self, other: "MeanPrecision") -> Scalar:
        ratio = other.strength.value() / self.strength.value()
        spread = self.mean.shape[-1] * (ratio - 1 - jnp.log(ratio))
        shift = matvec(self.precision.factor().mT, self.mean - other.mean)
        apart = other.strength.value() * self.precision.dof() * (shift**2).sum(-1)
        return self.precision.kl(other.precision) + (spread + apart) / 2

    def is_inside(self) -> Bool[Array, "*batch"]:
        strength = self.strength.value()
        is_positive = jnp.isfinite(positive_part(strength))
        both = self.precision.is_inside() & is_positive
        return all_finite((self.mean, self.strength), both)

    # m, κ and the Wishart distribution are orthogonal in the Fisher metric.

    def slope(self, grad: "MeanPrecision") -> Statistics:
        log_det, matrix = self.precision.slope(grad.precision)
        root = inverse_root(self.precision.expectation().matrix)
        linear = matvec(root, matvec(root.mT, grad.mean))
        by_strength = self.strength.slope(grad.strength)
        square = -(self.strength.value() ** 2) * by_strength / self.mean.shape[-1]
        return Statistics(-log_det, matrix, linear, square)

    def direction(self, slope: Statistics) -> "MeanPrecision":
        at = wishart.Statistics(-slope.log_det, slope.matrix)
        return MeanPrecision(
            slope.linear / self.strength.value()[..., None],
            self.strength.tangent(-2 * slope.square),
            self.precision.direction(at),
        )

    def stepped(self, slope: Statistics, size: Float[Array, ""]) -> "MeanPrecision":
        strength = self.strength.value() + 2 * size * slope.square
        shift = size * slope.linear / strength[..., None]
        matrix = slope.matrix - outer(slope.linear, shift) / 2
        precision = self.precision.stepped(
            wishart.Statistics(-slope.log_det, matrix), size
        )
        return MeanPrecision(self.mean - shift, self.strength.at(strength), precision)

    def _offset(self) -> float:
        """What the power of |Σ| has beyond that of |Σ⁻¹| in a Wishart distribution."""
        return self.mean.shape[-1] + 1.5

    def _normalizer(self, of_wishart: Scalar, strength: Scalar) -> Scalar:
        size = self.mean.shape[-1]
        return of_wishart + size / 2 * (math.log(2 * math.pi) - jnp.log(strength))
