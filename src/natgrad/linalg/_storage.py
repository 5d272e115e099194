"""Positive definite matrices in coordinates: Full, Sqrt, Log."""

import abc
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.linalg._spectral import exp_difference, expm, logm
from natgrad.linalg._triangular import (
    Columns,
    Matrix,
    Scalar,
    Shared,
    Vector,
    cholesky,
    eye_like,
    lower_half,
    lower_of_product,
    lower_product,
    matvec,
    mirrored,
    outer,
    pack_lower,
    quadratic_form,
    solve_lower,
    solve_lower_transposed,
    symmetric,
    transposed,
    unpack_lower,
    upper_apply,
)


if TYPE_CHECKING:  # the runtime checker of the tests cannot read this bound
    S = TypeVar("S", bound="AbstractPositiveDefinite")
else:
    S = TypeVar("S")


class AbstractPositiveDefinite(eqx.Module):
    """A positive definite matrix M. The class says what is stored.

    A new storage needs `matrix` and `at`. The other methods follow from these two;
    override one if the stored form knows a better way. F is any factor, F Fᵀ = M.
    """

    @abc.abstractmethod
    def matrix(self) -> Matrix:
        """The matrix itself."""

    @abc.abstractmethod
    def at(self: S, matrix: Matrix) -> S:
        """Another matrix, in the coordinates of `self`."""

    def at_factor(self: S, factor: Matrix) -> S:
        """The matrix with a lower triangular factor, in the coordinates of `self`."""
        return self.at(factor @ factor.mT)

    def moved(self: S, change: Matrix) -> S:
        """M + change, in the coordinates of `self`."""
        return self.at(self.matrix() + change)

    def factor(self) -> Matrix:
        """F"""
        return cholesky(self.matrix())

    def whiten(self, columns: Columns) -> Columns:
        """F⁻¹ x"""
        return solve_lower(self.factor(), columns)

    def whiten_transposed(self, columns: Columns) -> Columns:
        """F⁻ᵀ x"""
        return solve_lower_transposed(self.factor(), columns)

    def spread(self, columns: Shared) -> Shared:
        """Fᵀ x, whose squares sum to xᵀ M x."""
        return self.factor().mT @ columns

    def quadratic_form(self, columns: Shared) -> Float[Array, "... K"]:
        """xᵀ M x of each column x."""
        return (self.spread(columns) ** 2).sum(-2)

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

    def inner_slope(self, grad: Any) -> Matrix:
        """Fᵀ (∂L/∂M) F, from the gradient in these coordinates."""
        factor = self.factor()
        return symmetric(transposed(factor) @ (self.slope(grad) @ factor))

    def factor_times(self, lower: Matrix) -> Matrix:
        """F X of a lower triangular matrix X."""
        return self.factor() @ lower

    def tangent(self: S, change: Matrix) -> S:
        """How the coordinates move when M moves by `change`, a symmetric matrix."""
        return jax.jvp(self.at, (self.matrix(),), (change,))[1]

    def raised(self: S, slope: Matrix) -> S:
        """How the coordinates move when M moves by M · slope · M."""
        matrix = self.matrix()
        return self.tangent(symmetric(matrix @ slope @ matrix))

    def riemannian(self: S, grad: Any, u: Vector, v: Vector) -> S:
        """How the coordinates move when M moves by M (∂L/∂M) M + (u vᵀ + v uᵀ)/2."""
        matrix = self.matrix()
        middle = matrix @ self.slope(grad) @ matrix
        return self.tangent(symmetric(middle + outer(u, v)))

    def pack(self) -> list[Array]:
        """A gradient in these coordinates, as arrays without repeated numbers."""
        return jax.tree.leaves(self)

    def unpack(self, packed: list[Array]) -> Any:
        """The gradient that `pack` packed."""
        return jax.tree.unflatten(jax.tree.structure(self), packed)


class Full(AbstractPositiveDefinite):
    """A positive definite matrix stored as all its entries.

    >>> matrix = Full(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> print(f"{matrix.log_det():.2f}", matrix.solve(jnp.ones(2)))
    2.77 [0.1875 0.125 ]
    """

    full: Matrix

    def matrix(self) -> Matrix:
        return symmetric(self.full)

    def at(self, matrix: Matrix) -> "Full":
        return Full(symmetric(matrix))

    def quadratic_form(self, columns: Shared) -> Float[Array, "... K"]:
        return quadratic_form(self.matrix(), columns)

    def slope(self, grad: "Full") -> Matrix:
        return symmetric(grad.full)

    def tangent(self, change: Matrix) -> "Full":
        return Full(change)

    def pack(self) -> list[Array]:
        return pack_lower(symmetric(self.full))

    def unpack(self, packed: list[Array]) -> "Full":
        return Full(mirrored(unpack_lower(packed, self.full.shape[-1])))


class Sqrt(AbstractPositiveDefinite):
    """A positive definite matrix stored as its Cholesky factor.

    natgrad does not read the entries above the diagonal.

    >>> matrix = Sqrt(jnp.array([[2.0, 0.0], [1.0, 2.0]]))
    >>> print(matrix.matrix())
    [[4. 2.]
     [2. 5.]]
    """

    root: Matrix

    def matrix(self) -> Matrix:
        root = self.factor()
        return root @ root.mT

    def at(self, matrix: Matrix) -> "Sqrt":
        return Sqrt(cholesky(symmetric(matrix)) * _signs(self.root))

    def at_factor(self, factor: Matrix) -> "Sqrt":
        return Sqrt(factor * (_signs(self.root) * _signs(factor)))

    def moved(self, change: Matrix) -> "Sqrt":
        inner = self.whiten(self.whiten(change).mT)
        ratio = cholesky(eye_like(inner) + symmetric(inner))
        return Sqrt(lower_product(self.factor(), ratio))

    def factor(self) -> Matrix:
        return jnp.tril(self.root)

    def spread(self, columns: Shared) -> Shared:
        return upper_apply(self.factor(), columns)

    def apply(self, vector: Vector) -> Vector:
        root = self.factor()
        return matvec(root, matvec(root.mT, vector))

    def slope(self, grad: "Sqrt") -> Matrix:
        inner = self.inner_slope(grad)
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
        return self._inner_tangent(self.inner_slope(grad) + symmetric(outer(u, v)))

    # With M = R(I + X)Rᵀ, the root moves by R Φ(X): no solve and no decomposition.

    def inner_slope(self, grad: "Sqrt") -> Matrix:
        half = lower_half(lower_of_product(self.factor(), jnp.tril(grad.root)))
        return (half + half.mT) / 2

    def factor_times(self, lower: Matrix) -> Matrix:
        return lower_product(self.factor(), lower)

    def pack(self) -> list[Array]:
        return pack_lower(self.root)

    def unpack(self, packed: list[Array]) -> "Sqrt":
        return Sqrt(unpack_lower(packed, self.root.shape[-1]))

    def _inner_tangent(self, change: Matrix) -> "Sqrt":
        return Sqrt(lower_product(self.factor(), lower_half(change)))


def _signs(root: Matrix) -> Array:
    """Of each column: a step may turn one over, and maps at the root keep it so."""
    diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
    return jnp.where(diagonal < 0, -1, 1).astype(root.dtype)[..., None, :]


class Log(AbstractPositiveDefinite):
    """A positive definite matrix stored as its logarithm, W with exp(W) = M.

    >>> matrix = natgrad.linalg.Log(jnp.zeros((2, 2)))
    >>> print(matrix.matrix())
    [[1. 0.]
     [0. 1.]]
    """

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

    def pack(self) -> list[Array]:
        return pack_lower(symmetric(self.log))

    def unpack(self, packed: list[Array]) -> "Log":
        return Log(mirrored(unpack_lower(packed, self.log.shape[-1])))
