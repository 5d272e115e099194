"""Gaussians with a precision of low rank plus a diagonal: MeanPrecision."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.families._base import all_finite, family
from natgrad.families._implicit import conjugate_gradients
from natgrad.families.diagonal import AbstractDiagonal, eye_of
from natgrad.families.gaussian import AbstractCorrelated, Statistics, kl_from_factors
from natgrad.linalg._triangular import (
    Columns,
    Matrix,
    Scalar,
    Vector,
    cholesky,
    eye_like,
    matvec,
    solve_lower,
    solve_lower_transposed,
    symmetric,
)
from natgrad.positive import AbstractPositive


__all__ = ["MeanPrecision"]


Factors = Float[Array, "*batch M R"]

CURVED = (
    "low_rank.MeanPrecision is no exponential family, and most {} parameters lead to "
    "no member of it; take steps with natural_gradient or path instead"
)

ROUNDS = 500
"""How many products with the Fisher matrix a natural gradient may take."""


@family(Statistics)
class MeanPrecision(AbstractCorrelated):
    """N(m, S) with S⁻¹ = diag(d) + B Bᵀ, in the coordinates m, d and B.

    B has one column for each direction in which the precision differs from a diagonal,
    M rows and R columns. All methods that a diagonal Gaussian has, and the natural
    gradient, cost O(M R²) and form no matrix of M rows and columns, except `natural`,
    `expectation`, `covariance`, `factor` and the divergence to a full Gaussian.

    These Gaussians are no exponential family but a curved part of one, that of all
    Gaussians. θ and η are those of the full Gaussian, and most of them lead to no
    member, so the maps back raise an error. The natural gradient is the inverse Fisher
    matrix of the coordinates times the gradient, found by conjugate gradients.

    At B = 0 the gradient with respect to B is zero, so start with a small random B.

    Raises:
        InputError: From the two maps back, `at_natural` and `at_expectation`.

    >>> from natgrad.families import diagonal, low_rank
    >>> factors = jax.random.normal(jax.random.key(0), (100, 3))
    >>> q = low_rank.MeanPrecision(jnp.zeros(100), Log(jnp.zeros(100)), factors)
    >>> q.sample(jax.random.key(1), (5,)).shape
    (5, 100)
    >>> prior = diagonal.Moments(jnp.zeros(100), Log(jnp.zeros(100)))
    >>> bool(q.kl(prior) > 0)
    True
    """

    mean: Vector
    diagonal: AbstractPositive
    factors: Factors

    def location(self) -> Vector:
        """m"""
        return self.mean

    def variances(self) -> Vector:
        """The diagonal of S."""
        return self._parts().variances

    def solve(self, columns: Columns) -> Columns:
        """S x"""
        return self._parts().solve(columns)

    def covariance(self) -> Matrix:
        """S"""
        return symmetric(self.solve(eye_of(self.mean)))

    def factor(self) -> Float[Array, "*batch M K"]:
        """F with F Fᵀ = S, of M rows and M + R columns."""
        roots = jnp.sqrt(self.diagonal.value())[..., None] * eye_of(self.mean)
        return self.solve(jnp.concatenate([roots, self.factors], -1))

    def whiten(self, columns: Columns) -> Float[Array, "*batch N K"]:
        """What has the squared length xᵀ S⁻¹ x, in M + R rows."""
        roots = jnp.sqrt(self.diagonal.value())[..., None]
        return jnp.concatenate([roots * columns, self.factors.mT @ columns], -2)

    def log_det(self) -> Scalar:
        """log |S|"""
        return self._parts().log_det

    def natural(self) -> Statistics:
        precision = self.factors @ self.factors.mT
        precision += self.diagonal.value()[..., None] * eye_like(precision)
        return Statistics(matvec(precision, self.mean), -precision / 2)

    def at_natural(self, theta: Statistics) -> "MeanPrecision":
        raise InputError(CURVED.format("natural"))

    def at_expectation(self, eta: Statistics) -> "MeanPrecision":
        raise InputError(CURVED.format("expectation"))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        # S (√d ε + B ε′) has the covariance S S⁻¹ S.
        key, other_key = jax.random.split(key)
        number, mean = math.prod(shape), self.mean
        noise = jax.random.normal(key, (*mean.shape, number), mean.dtype)
        rank = (*mean.shape[:-1], self.factors.shape[-1], number)
        low = jax.random.normal(other_key, rank, mean.dtype)
        roots = jnp.sqrt(self.diagonal.value())[..., None]
        draws = mean[..., None] + self.solve(roots * noise + self.factors @ low)
        return jnp.moveaxis(draws, -1, 0).reshape(shape + mean.shape)

    def kl(self, other: Any) -> Scalar:
        """KL(self ‖ other); `other` may be a diagonal or a full Gaussian."""
        if not isinstance(other, AbstractDiagonal | MeanPrecision):
            return kl_from_factors(self, other)
        here = self._parts()
        if isinstance(other, AbstractDiagonal):
            trace = (here.variances / other.variances()).sum(-1)
        else:
            across = (other.factors * here.solve(other.factors)).sum((-2, -1))
            trace = (other.diagonal.value() * here.variances).sum(-1) + across
        shift = other.whiten((self.mean - other.location())[..., None])
        log_ratio = other.log_det() - here.log_det
        trace = trace - self.mean.shape[-1]
        return (trace + (shift**2).sum((-2, -1)) + log_ratio) / 2

    def is_inside(self) -> Bool[Array, "*batch"]:
        is_positive = (self.diagonal.value() > 0).all(-1)
        return all_finite(self, jnp.isfinite(self.log_det()) & is_positive)

    def natural_gradient(self, grad: "MeanPrecision") -> "MeanPrecision":
        mean = self.solve(grad.mean[..., None])[..., 0]
        change = self._precision_change(grad)
        return MeanPrecision(
            mean, self.diagonal.tangent(change.diagonal), change.factors
        )

    def path(self, grad: Any) -> Callable[[Float[Array, ""]], "MeanPrecision"]:
        """The distribution at d and B less size times their natural gradient.

        The mean moves by size · S ∂L/∂m, with the S that the step leads to. For B = 0
        this is the step of a diagonal Gaussian in θ.
        """
        change = self._precision_change(grad)

        def moved(size: Float[Array, ""]) -> MeanPrecision:
            diagonal = self.diagonal.at(self.diagonal.value() - size * change.diagonal)
            factors = self.factors - size * change.factors
            there = MeanPrecision(self.mean, diagonal, factors)
            shift = there.solve(grad.mean[..., None])[..., 0]
            return MeanPrecision(self.mean - size * shift, diagonal, factors)

        return moved

    def _precision_change(self, grad: "MeanPrecision") -> "_Change":
        """The natural gradient in d and B.

        Conjugate gradients look for the change of d as a share of d, and for that of B
        as one of √d: such numbers have no units.
        """
        parts, values = self._parts(), self.diagonal.value()
        roots = jnp.sqrt(values)[..., None]
        scaled = lambda x: _Change(values * x.diagonal, roots * x.factors)
        slope = _Change(self.diagonal.slope(grad.diagonal), grad.factors)
        middle = self.factors.mT @ parts.solve(self.factors)
        trace = jnp.trace(middle, axis1=-2, axis2=-1)[..., None, None]
        tiny = jnp.finfo(middle.dtype).tiny
        eps = jnp.finfo(middle.dtype).eps
        middle = symmetric(middle) + (eps * trace + tiny**0.5) * eye_like(middle)
        root = cholesky(middle)

        def precondition(x: _Change) -> _Change:
            inner = solve_lower_transposed(root, solve_lower(root, x.factors.mT))
            return _Change(2 * x.diagonal / (values * parts.variances) ** 2, inner.mT)

        product = lambda x: scaled(self._fisher(parts, scaled(x)))
        least = eps**1.5
        right, like = scaled(slope), parts.log_det
        return scaled(
            conjugate_gradients(product, precondition, right, like, ROUNDS, least)
        )

    def _fisher(self, parts: "_Parts", change: "_Change") -> "_Change":
        """The Fisher matrix times a change of d and B: the slopes of tr(S Ṗ S Ṗ)/4.

        A change that turns B leaves B Bᵀ as it is and has no length. Here it has one,
        |BᵀSḂ − ḂᵀSB|²/4. The gradient is zero along it, so the solution is the same.
        """
        shrinkage, delta = parts.shrinkage, change.diagonal
        across, moved = parts.solve(self.factors), parts.solve(change.factors)
        # The diagonal of S diag(δ) S, with the squares of the entries of S.
        inside = (shrinkage**2).sum(-1)
        low = shrinkage.mT @ (delta[..., None] * shrinkage)
        squares = delta * parts.inverse * (parts.inverse - 2 * inside)
        squares += ((shrinkage @ low) * shrinkage).sum(-1)
        diagonal = squares / 2 + (moved * across).sum(-1)
        factors = (
            parts.solve(delta[..., None] * across)
            + moved @ (self.factors.mT @ across)
            + across @ (across.mT @ change.factors)
        )
        return _Change(diagonal, factors)

    def _parts(self) -> "_Parts":
        inverse = 1 / self.diagonal.value()
        inner = self.factors.mT @ (inverse[..., None] * self.factors)
        root = cholesky(eye_like(inner) + symmetric(inner))
        shrinkage = solve_lower(root, (inverse[..., None] * self.factors).mT).mT
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        log_det = jnp.log(inverse).sum(-1) - 2 * jnp.log(diagonal).sum(-1)
        return _Parts(inverse, shrinkage, log_det)


class _Change(NamedTuple):
    """A change of d and of B, or a gradient with respect to them."""

    diagonal: Vector
    factors: Factors


class _Parts(NamedTuple):
    """S = diag(inverse) − W Wᵀ, by the matrix inversion lemma, and log |S|."""

    inverse: Vector
    shrinkage: Factors
    log_det: Scalar

    @property
    def variances(self) -> Vector:
        return self.inverse - (self.shrinkage**2).sum(-1)

    def solve(self, columns: Columns) -> Columns:
        inside = self.shrinkage @ (self.shrinkage.mT @ columns)
        return self.inverse[..., None] * columns - inside
