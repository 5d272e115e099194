"""Gaussians with full covariance: Moments, Canonical."""

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.families._base import AbstractDistribution, Trial, all_finite, family
from natgrad.linalg import AbstractPositiveDefinite
from natgrad.linalg._triangular import (
    Columns,
    Matrix,
    Scalar,
    Shared,
    Vector,
    cholesky,
    eye_like,
    for_each,
    inverse_root,
    inverse_upper,
    matvec,
    outer,
    solve_lower,
    symmetric,
    transposed,
)


__all__ = ["Moments", "Canonical"]


class Statistics(NamedTuple):
    """The shape of T(u) = (u, uuᵀ), and so of θ and η."""

    first: Float[Array, "*batch M"]
    second: Float[Array, "*batch M M"]


class AbstractCorrelated(AbstractDistribution[Statistics]):
    """N(m, S) with a covariance that is not diagonal, S = F Fᵀ for any factor F."""

    @abc.abstractmethod
    def location(self) -> Vector:
        """m"""

    @abc.abstractmethod
    def covariance(self) -> Matrix:
        """S"""

    @abc.abstractmethod
    def factor(self) -> Matrix:
        """F"""

    @abc.abstractmethod
    def whiten(self, columns: Columns) -> Columns:
        """F⁻¹ x"""

    @abc.abstractmethod
    def log_det(self) -> Scalar:
        """log |S|"""

    def expectation(self) -> Statistics:
        mean = self.location()
        return Statistics(mean, self.covariance() + outer(mean, mean))

    def log_normalizer(self, theta: Statistics) -> Scalar:
        root = cholesky(symmetric(-2 * theta.second))
        half = solve_lower(root, theta.first[..., None])[..., 0]
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        constant = half.shape[-1] / 2 * math.log(2 * math.pi)
        return (half**2).sum(-1) / 2 - jnp.log(diagonal).sum(-1) + constant

    def statistics(self, u: Vector) -> Statistics:
        return Statistics(u, outer(u, u))

    def log_prob(self, u: Array) -> Float[Array, "..."]:
        here = self.location()
        u, mean = jnp.broadcast_arrays(u, here)
        columns = jnp.moveaxis((u - mean).reshape((-1, *here.shape)), 0, -1)
        distance = (self.whiten(columns) ** 2).sum(-2)
        constant = self.log_det() + u.shape[-1] * math.log(2 * math.pi)
        log_prob = -(distance + constant[..., None]) / 2
        return jnp.moveaxis(log_prob, -1, 0).reshape(u.shape[:-1])

    def entropy(self) -> Scalar:
        constant = self.location().shape[-1] * (1 + math.log(2 * math.pi))
        return (self.log_det() + constant) / 2


@family(Statistics)
class AbstractGaussian(AbstractCorrelated):
    """N(m, S), in which θ = (S⁻¹m, −S⁻¹/2) and η = (m, S + mmᵀ).

    Slopes are taken with respect to the statistics centred at the distribution itself,
    (u − m, (u − m)(u − m)ᵀ), where ∂L/∂η is (∂L/∂m, ∂L/∂S). Centring changes neither
    the family nor the step, and it keeps all digits however large the mean is. F is any
    factor of the covariance, F Fᵀ = S.
    """

    @abc.abstractmethod
    def spread(self, columns: Shared) -> Shared:
        """Fᵀ x, whose squares sum to the variance of xᵀu."""

    def variances(self, columns: Shared) -> Float[Array, "... K"]:
        """The variance of xᵀu for each column x."""
        return (self.spread(columns) ** 2).sum(-2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        mean = self.location()
        columns = (*mean.shape, math.prod(shape))
        noise = jax.random.normal(key, columns, mean.dtype)
        draws = mean[..., None] + self.factor() @ noise
        return jnp.moveaxis(draws, -1, 0).reshape(shape + mean.shape)

    def kl(self, other: Any) -> Scalar:
        """KL(self ‖ other); `other` may be a diagonal Gaussian."""
        return kl_from_factors(self, other)

    def is_inside(self) -> Bool[Array, "*batch"]:
        finite = jnp.isfinite(self.log_det()) & jnp.isfinite(self.location()).all(-1)
        return all_finite(self, finite)

    def _covariance_at(self, eta: Statistics) -> Matrix:
        """S(η) = η₂ − η₁η₁ᵀ, as a change from the S of `self`.

        The plain difference loses its digits when the mean is large; this one is exact
        at the current point, which is where it is differentiated.
        """
        here = self.expectation()
        change = outer(eta.first, eta.first) - outer(here.first, here.first)
        return self.covariance() + (eta.second - here.second) - change


def kl_from_factors(q: Any, other: Any) -> Scalar:
    """KL(q ‖ other), from factors, so that large means lose no digits.

    Raises:
        InputError: If `other` is not Gaussian.
    """
    if not hasattr(other, "whiten"):
        raise InputError(
            f"there is no divergence from a Gaussian to a {type(other).__module__}."
            f"{type(other).__name__}; both should be Gaussian, full or diagonal"
        )
    shift = other.whiten((q.location() - other.location())[..., None])
    spread = other.whiten(q.factor())
    trace = (spread**2).sum((-2, -1)) - q.location().shape[-1]
    log_ratio = other.log_det() - q.log_det()
    return (trace + (shift**2).sum((-2, -1)) + log_ratio) / 2


class Moments(AbstractGaussian):
    """A Gaussian in the coordinates m and S.

    T(u) is (u, uuᵀ), in the fields `first` and `second`.

    >>> q = gaussian.Moments(jnp.zeros(2), Sqrt(jnp.eye(2)))
    >>> print(q.covariance())
    [[1. 0.]
     [0. 1.]]
    >>> q.sample(jax.random.key(0), (5,)).shape
    (5, 2)
    """

    mean: Vector
    cov: AbstractPositiveDefinite

    def location(self) -> Vector:
        return self.mean

    def covariance(self) -> Matrix:
        return self.cov.matrix()

    def factor(self) -> Matrix:
        return self.cov.factor()

    def whiten(self, columns: Columns) -> Columns:
        return self.cov.whiten(columns)

    def spread(self, columns: Shared) -> Shared:
        return self.cov.spread(columns)

    def variances(self, columns: Shared) -> Float[Array, "... K"]:
        return self.cov.quadratic_form(columns)

    def log_det(self) -> Scalar:
        return self.cov.log_det()

    def natural(self) -> Statistics:
        return Statistics(self.cov.solve(self.mean), -self.cov.inverse() / 2)

    def at_natural(self, theta: Statistics) -> "Moments":
        root = inverse_root(-2 * theta.second)
        mean = matvec(root, matvec(root.mT, theta.first))
        return Moments(mean, self.cov.at_factor(root))

    def at_expectation(self, eta: Statistics) -> "Moments":
        return Moments(eta.first, self.cov.at(self._covariance_at(eta)))

    def slope(self, grad: "Moments") -> Statistics:
        return Statistics(grad.mean, self.cov.slope(grad.cov))

    def direction(self, slope: Statistics) -> "Moments":
        double = jax.tree.map(lambda x: 2 * x, self.cov.raised(slope.second))
        return Moments(self.cov.apply(slope.first), double)

    def natural_gradient(self, grad: "Moments") -> "Moments":
        zero = jnp.zeros_like(self.mean)
        cov = self.cov.riemannian(grad.cov, zero, zero)
        return Moments(self.cov.apply(grad.mean), jax.tree.map(lambda x: 2 * x, cov))

    def path(self, grad: Any) -> Callable[[Float[Array, ""]], "Moments"]:
        if not isinstance(grad, Moments):
            return lambda size: self.stepped(grad, size)
        inner = self.cov.inner_slope(grad.cov)
        return lambda size: self._moved(grad.mean, inner, size)

    def trials(self, grad: Any) -> Callable[[Float[Array, ""]], Trial]:
        if not isinstance(grad, Moments):
            return super().trials(grad)
        inner = self.cov.inner_slope(grad.cov)
        slope = matvec(transposed(self.cov.factor()), grad.mean)  # Fᵀ ∂L/∂m
        trace = 2 * jnp.trace(inner, axis1=-2, axis2=-1)

        def trial(size: Float[Array, ""]) -> Trial:
            # From q, q′ is N(−γ U⁻ᵀ U⁻¹ s, U⁻ᵀ U⁻¹), with U Uᵀ = I + D: no products
            # but with the factor of q are needed for either divergence.
            upper = inverse_upper(eye_like(inner) + 2 * size * inner)
            root = self.cov.factor_times(transposed(upper))
            half = size * matvec(upper, slope)
            shift = matvec(upper.mT, half)
            there = Moments(self.mean - matvec(root, half), self.cov.at_factor(root))
            diagonal = jnp.diagonal(upper, axis1=-2, axis2=-1)
            log_ratio = 2 * jnp.log(diagonal).sum(-1)  # log |S′| − log |S|
            spread = (upper**2).sum((-2, -1)) - upper.shape[-1]
            forward = (spread + (shift**2).sum(-1) - log_ratio) / 2
            backward = (size * trace + (half**2).sum(-1) + log_ratio) / 2
            # Rounding can make a short one negative, and any test would pass that.
            return Trial(there, jnp.maximum(forward, 0), jnp.maximum(backward, 0))

        return trial

    def stepped(self, slope: Statistics, size: Float[Array, ""]) -> "Moments":
        factor = self.cov.factor()
        inner = transposed(factor) @ (slope.second @ factor)
        return self._moved(slope.first, symmetric(inner), size)

    def _moved(self, slope: Vector, inner: Matrix, size: Float[Array, ""]) -> "Moments":
        """The step, from ∂L/∂m and Fᵀ (∂L/∂S) F."""
        # S⁻¹ becomes F⁻ᵀ (I + D) F⁻¹, so F U⁻ᵀ is a factor of the new S.
        upper = inverse_upper(eye_like(inner) + 2 * size * inner)
        root = self.cov.factor_times(transposed(upper))
        mean = self.mean - size * matvec(root, matvec(root.mT, slope))
        return Moments(mean, self.cov.at_factor(root))


class Canonical(AbstractGaussian):
    """A Gaussian in the coordinates θ₁ and −Θ₂ = S⁻¹/2.

    log q(u) = ⟨linear, u⟩ − uᵀ quadratic u + const.

    >>> q = gaussian.Canonical(jnp.ones(2), Full(jnp.eye(2)))
    >>> print(q.location())
    [0.5 0.5]
    >>> print(q.covariance())
    [[0.5 0. ]
     [0.  0.5]]
    """

    linear: Vector
    quadratic: AbstractPositiveDefinite

    def location(self) -> Vector:
        return self.quadratic.solve(self.linear) / 2

    def covariance(self) -> Matrix:
        return self.quadratic.inverse() / 2

    def factor(self) -> Matrix:
        identity = eye_like(self.quadratic.matrix())
        return self.quadratic.whiten_transposed(identity) / math.sqrt(2)

    def whiten(self, columns: Columns) -> Columns:
        return math.sqrt(2) * (self.quadratic.factor().mT @ columns)

    def spread(self, columns: Shared) -> Shared:
        columns = for_each(self.linear[..., None], columns)
        return self.quadratic.whiten(columns) / math.sqrt(2)

    def log_det(self) -> Scalar:
        return -self.quadratic.log_det() - self.linear.shape[-1] * math.log(2)

    def natural(self) -> Statistics:
        return Statistics(self.linear, -self.quadratic.matrix())

    def at_natural(self, theta: Statistics) -> "Canonical":
        return Canonical(theta.first, self.quadratic.at(-theta.second))

    def at_expectation(self, eta: Statistics) -> "Canonical":
        root = inverse_root(self._covariance_at(eta))
        linear = matvec(root, matvec(root.mT, eta.first))
        return Canonical(linear, self.quadratic.at_factor(root / math.sqrt(2)))

    def slope(self, grad: "Canonical") -> Statistics:
        # ∂L/∂θ₁ is S ∂L/∂m, and Q moves by −∂L/∂S along the natural gradient.
        direction = self.natural_gradient(grad)
        along = lambda storage: storage.matrix()
        change = jax.jvp(along, (self.quadratic,), (direction.quadratic,))[1]
        return Statistics(2 * self.quadratic.apply(grad.linear), -change)

    def direction(self, slope: Statistics) -> "Canonical":
        first, second = self._uncentred(slope)
        return Canonical(first, self.quadratic.tangent(-second))

    def natural_gradient(self, grad: "Canonical") -> "Canonical":
        # With B = ∂L/∂Q and g = ∂L/∂m = 2Q ∂L/∂θ₁, the matrix Q moves by
        # 2QBQ + (g θ₁ᵀ + θ₁ gᵀ)/2 and θ₁ by g + 2 (change of Q) m.
        slope = 2 * self.quadratic.apply(grad.linear)
        half = self.quadratic.riemannian(grad.quadratic, slope / 2, self.linear)
        quadratic = jax.tree.map(lambda x: 2 * x, half)
        mean = self.location()
        at_mean = lambda storage: storage.apply(mean)
        change = jax.jvp(at_mean, (self.quadratic,), (quadratic,))[1]
        return Canonical(slope + 2 * change, quadratic)

    def stepped(self, slope: Statistics, size: Float[Array, ""]) -> "Canonical":
        first, second = self._uncentred(slope)
        quadratic = self.quadratic.moved(size * second)
        return Canonical(self.linear - size * first, quadratic)

    def _uncentred(self, slope: Statistics) -> Statistics:
        """∂L/∂η with respect to (u, uuᵀ), from that at the centred statistics."""
        second = symmetric(slope.second)
        return Statistics(slope.first - 2 * matvec(second, self.location()), second)
