"""Positive definite matrices in coordinates: Full, Sqrt, Log."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natgrad.spectral import exp_difference, expm, logm


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch M"]
Matrix = Float[Array, "*batch M M"]
Columns = Float[Array, "*batch M K"]

BLOCK = 256
"""Triangular products are cut in blocks above this size."""


def symmetric(matrix: Matrix) -> Matrix:
    """The symmetric part."""
    return (matrix + matrix.mT) / 2


def outer(a: Vector, b: Vector) -> Matrix:
    """a bᵀ"""
    return a[..., :, None] * b[..., None, :]


def matvec(matrix: Matrix, vector: Vector) -> Vector:
    return (matrix @ vector[..., None])[..., 0]


def transposed(matrix: Matrix) -> Matrix:
    """The transpose as an array of its own.

    A product with a transposed left operand costs XLA several times a plain one on a
    CPU; behind a barrier the transpose is copied, and the product is plain.
    """
    return lax.optimization_barrier(matrix.mT)


def cholesky(matrix: Matrix) -> Matrix:
    """The Cholesky factor of what is symmetric already, NaN where there is none."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


def upper_cholesky(matrix: Matrix) -> Matrix:
    """Upper triangular U with U Uᵀ = matrix."""
    flipped = jnp.linalg.cholesky(jnp.flip(matrix, (-2, -1)))
    return jnp.flip(flipped, (-2, -1))


def inverse_root(matrix: Matrix) -> Matrix:
    """The Cholesky factor of the inverse: U⁻ᵀ, where U Uᵀ is the matrix."""
    upper = upper_cholesky(matrix)
    return transposed(solve_triangular(upper, eye_like(upper)))


def eye_like(matrix: Matrix) -> Matrix:
    return jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)


def log_det(matrix: Matrix) -> Scalar:
    """log |M| of a positive definite matrix, NaN where it is not."""
    root = jnp.linalg.cholesky(matrix)
    return 2 * jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)).sum(-1)


def lower_product(a: Matrix, b: Matrix) -> Matrix:
    """A B of two lower triangular matrices, which is one: a third of the full product.

    Blocks that are zero are skipped, down to a size below which skipping costs more.
    """
    size = a.shape[-1]
    if size <= BLOCK:
        return a @ b
    k = size // 2
    top = lower_product(a[..., :k, :k], b[..., :k, :k])
    corner = a[..., k:, :k] @ b[..., :k, :k] + a[..., k:, k:] @ b[..., k:, :k]
    bottom = lower_product(a[..., k:, k:], b[..., k:, k:])
    return _lower_blocks(top, corner, bottom)


def lower_of_product(a: Matrix, b: Matrix) -> Matrix:
    """The lower triangle of Aᵀ B for lower triangular A and B, with work to match."""
    size = a.shape[-1]
    if size <= BLOCK:
        return jnp.tril(transposed(a) @ b)
    k = size // 2
    below = transposed(a[..., k:, :k]) @ b[..., k:, :k]
    top = lower_of_product(a[..., :k, :k], b[..., :k, :k]) + jnp.tril(below)
    corner = transposed(a[..., k:, k:]) @ b[..., k:, :k]
    bottom = lower_of_product(a[..., k:, k:], b[..., k:, k:])
    return _lower_blocks(top, corner, bottom)


def _lower_blocks(top: Matrix, corner: Array, bottom: Matrix) -> Matrix:
    zero = jnp.zeros((*top.shape[:-1], bottom.shape[-1]), top.dtype)
    upper = jnp.concatenate([top, zero], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, bottom], -1)], -2)


def lower_half(matrix: Matrix) -> Matrix:
    """Φ: the lower triangle, its diagonal halved, so that X = Φ(X) + Φ(X)ᵀ."""
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    return jnp.tril(matrix) - diagonal[..., None] * eye_like(matrix) / 2


class AbstractPositiveDefinite(eqx.Module):
    """A positive definite matrix M. The class says what is stored of it.

    A new storage is `matrix` and `at`; the rest follows from these two, and is there to
    be overridden where the stored form knows a better way. F is any factor, F Fᵀ = M.
    """

    @abc.abstractmethod
    def matrix(self) -> Matrix:
        """The matrix itself."""

    @abc.abstractmethod
    def at(self, matrix: Matrix) -> "AbstractPositiveDefinite":
        """Another matrix, in the coordinates of `self`."""

    def at_factor(self, factor: Matrix) -> "AbstractPositiveDefinite":
        """The matrix with a lower triangular factor, in the coordinates of `self`."""
        return self.at(factor @ factor.mT)

    def moved(self, change: Matrix) -> "AbstractPositiveDefinite":
        """M + change, in the coordinates of `self`."""
        return self.at(self.matrix() + change)

    def factor(self) -> Matrix:
        """F"""
        return cholesky(self.matrix())

    def whiten(self, columns: Columns) -> Columns:
        """F⁻¹ x"""
        return solve_triangular(self.factor(), columns, lower=True)

    def whiten_transposed(self, columns: Columns) -> Columns:
        """F⁻ᵀ x"""
        return solve_triangular(self.factor(), columns, lower=True, trans=1)

    def apply(self, vector: Vector) -> Vector:
        """M x"""
        return matvec(self.matrix(), vector)

    def solve(self, vector: Vector) -> Vector:
        """M⁻¹ x"""
        return self.whiten_transposed(self.whiten(vector[..., None]))[..., 0]

    def inverse(self) -> Matrix:
        """M⁻¹"""
        factor = self.whiten(eye_like(self.matrix()))
        return transposed(factor) @ factor

    def log_det(self) -> Scalar:
        """log |M|"""
        diagonal = jnp.diagonal(self.factor(), axis1=-2, axis2=-1)
        return 2 * jnp.log(jnp.abs(diagonal)).sum(-1)

    def slope(self, grad: Any) -> Matrix:
        """∂L/∂M, from the gradient in these coordinates."""
        _, pull_back = jax.vjp(self.at, self.matrix())
        return symmetric(pull_back(grad)[0])

    def tangent(self, change: Matrix) -> Any:
        """How the coordinates move when M moves by `change`, a symmetric matrix."""
        return jax.jvp(self.at, (self.matrix(),), (change,))[1]

    def raised(self, slope: Matrix) -> Any:
        """How the coordinates move when M moves by M · slope · M."""
        matrix = self.matrix()
        return self.tangent(symmetric(matrix @ slope @ matrix))

    def riemannian(self, grad: Any, u: Vector, v: Vector) -> Any:
        """How the coordinates move when M moves by M (∂L/∂M) M + (u vᵀ + v uᵀ)/2."""
        matrix = self.matrix()
        middle = matrix @ self.slope(grad) @ matrix
        return self.tangent(symmetric(middle + outer(u, v)))


class Full(AbstractPositiveDefinite):
    """All its entries."""

    full: Matrix

    def matrix(self) -> Matrix:
        return symmetric(self.full)

    def at(self, matrix: Matrix) -> "Full":
        return Full(symmetric(matrix))

    def slope(self, grad: "Full") -> Matrix:
        return symmetric(grad.full)

    def tangent(self, change: Matrix) -> "Full":
        return Full(change)


class Sqrt(AbstractPositiveDefinite):
    """Its Cholesky factor. What stands above the diagonal is not read."""

    root: Matrix

    def matrix(self) -> Matrix:
        root = self.factor()
        return root @ root.mT

    def at(self, matrix: Matrix) -> "Sqrt":
        return Sqrt(jnp.linalg.cholesky(matrix) * _signs(self.root))

    def at_factor(self, factor: Matrix) -> "Sqrt":
        return Sqrt(factor * (_signs(self.root) * _signs(factor)))

    def moved(self, change: Matrix) -> "Sqrt":
        inner = self.whiten(self.whiten(change).mT)
        ratio = cholesky(eye_like(inner) + symmetric(inner))
        return Sqrt(lower_product(self.factor(), ratio))

    def factor(self) -> Matrix:
        return jnp.tril(self.root)

    def apply(self, vector: Vector) -> Vector:
        root = self.factor()
        return matvec(root, matvec(root.mT, vector))

    def slope(self, grad: "Sqrt") -> Matrix:
        inner = self._inner_slope(grad)
        half = self.whiten_transposed(inner)
        return symmetric(self.whiten_transposed(half.mT))

    def tangent(self, change: Matrix) -> "Sqrt":
        half = self.whiten(change)
        return self._inner_tangent(self.whiten(half.mT))

    def raised(self, slope: Matrix) -> "Sqrt":
        root = self.factor()
        return self._inner_tangent(symmetric(transposed(root) @ (slope @ root)))

    def riemannian(self, grad: "Sqrt", u: Vector, v: Vector) -> "Sqrt":
        u, v = jnp.moveaxis(self.whiten(jnp.stack([u, v], -1)), -1, 0)
        return self._inner_tangent(self._inner_slope(grad) + symmetric(outer(u, v)))

    # With M = R(I + X)Rᵀ, the root moves by R Φ(X): no solve and no decomposition.

    def _inner_slope(self, grad: "Sqrt") -> Matrix:
        """∂L/∂X = Rᵀ (∂L/∂M) R"""
        lower = lower_of_product(self.factor(), jnp.tril(grad.root))
        half = lower_half(lower)
        return (half + half.mT) / 2

    def _inner_tangent(self, change: Matrix) -> "Sqrt":
        return Sqrt(lower_product(self.factor(), lower_half(change)))


def _signs(root: Matrix) -> Array:
    """Of each column: a step may turn one over, and maps at the root keep it so."""
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    return jnp.where(diagonal < 0, -1, 1).astype(root.dtype)[..., None, :]


class Log(AbstractPositiveDefinite):
    """Its matrix logarithm, a symmetric matrix W with exp(W) = M."""

    log: Matrix

    def matrix(self) -> Matrix:
        return expm(symmetric(self.log))

    def at(self, matrix: Matrix) -> "Log":
        return Log(logm(symmetric(matrix)))

    def factor(self) -> Matrix:
        return expm(symmetric(self.log), 0.5)

    def whiten(self, columns: Columns) -> Columns:
        return expm(symmetric(self.log), -0.5) @ columns

    def whiten_transposed(self, columns: Columns) -> Columns:
        return self.whiten(columns)

    def inverse(self) -> Matrix:
        return expm(symmetric(self.log), -1.0)

    def log_det(self) -> Scalar:
        return jnp.trace(self.log, axis1=-2, axis2=-1)

    def riemannian(self, grad: "Log", u: Vector, v: Vector) -> "Log":
        # In the eigenbasis of W every map of this change is a product of entries.
        w, basis = jnp.linalg.eigh(symmetric(self.log))
        basis_t = transposed(basis)
        slope = basis_t @ symmetric(grad.log) @ basis
        u, v = matvec(basis_t, u), matvec(basis_t, v)
        x = (w[..., :, None] - w[..., None, :]) / 2
        ratio = jnp.where(x == 0, 1, x / jnp.sinh(jnp.where(x == 0, 1, x)))
        difference = exp_difference(w[..., :, None], w[..., None, :])
        inner = ratio**2 * slope + symmetric(outer(u, v)) / difference
        return Log(basis @ inner @ basis_t)
