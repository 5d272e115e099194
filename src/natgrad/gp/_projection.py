"""Inputs seen from the inducing inputs, with derivatives of their own.

A row x enters a sparse model by a = L⁻¹ k(Z, x), where L Lᵀ = k(Z, Z). Autodiff through
a Cholesky factor and triangular solves costs several times what the same derivative
costs when it is written as products with L⁻¹:

    ∂/∂k(Z, X) = L⁻ᵀ Ā        ∂/∂k(Z, Z) = −½ L⁻ᵀ mirrored(Ā Aᵀ) L⁻¹

so these two have rules of their own, and the kernel and the likelihood, whatever they
are, are left to autodiff.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from natgrad._linear_map import tangent_by
from natgrad.linalg._triangular import (
    Columns,
    Matrix,
    Scalar,
    congruent,
    eye_like,
    inverse_cholesky,
    lower_apply,
    lower_half,
    lower_of_outer,
    lower_product,
    mirrored,
    symmetric,
    upper_apply,
)


LEAST = 1e-10
"""The share of the diagonal that is added to a kernel matrix in float64."""

RAISES = 6
"""How often the jitter is raised tenfold before a matrix is given up."""


class Factor(NamedTuple):
    """L⁻¹, where L Lᵀ = k(Z, Z) + jitter, and what share of the diagonal was added."""

    inverse: Float[Array, "*S M M"]
    jitter: Float[Array, ""]


def least_jitter(matrix: Matrix) -> float:
    """The share of the mean diagonal that is always added.

    In float64 less would cost the hyperparameters' derivatives their digits; in float32
    it is what rounding alone can take from an eigenvalue.
    """
    rounding = matrix.shape[-1] * float(jnp.finfo(matrix.dtype).eps)
    return max(LEAST, rounding)


def factorized(matrix: Matrix, scale: Scalar | None = None) -> Factor:
    """L⁻¹ of a kernel matrix, with as much jitter as it needs and no more.

    Where the Cholesky factor does not exist the jitter is raised tenfold, at most six
    times; after that L⁻¹ is NaN. It is the same share of the scale, which is the mean
    of the diagonal if nothing else is given, for all matrices of a batch.
    """
    least = jnp.full((), least_jitter(matrix), matrix.dtype)
    first = Factor(inverse_cholesky(jittered(matrix, least, scale)), least)
    most = least * 10.0**RAISES

    def is_failed(factor: Factor) -> Array:
        is_factor = jnp.isfinite(jnp.diagonal(factor.inverse, axis1=-2, axis2=-1)).all()
        return ~is_factor & (factor.jitter < most / 2)

    def raised(factor: Factor) -> Factor:
        # Seldom run, so that a program half as long is worth more than its time.
        more = 10 * factor.jitter
        inverse = inverse_cholesky(jittered(matrix, more, scale), matrix.shape[-1])
        return Factor(inverse, more)

    return lax.while_loop(is_failed, raised, first)


def jittered(
    matrix: Matrix, share: Float[Array, ""], scale: Scalar | None = None
) -> Matrix:
    """A matrix with a share of its scale added to the diagonal."""
    mean = jnp.diagonal(matrix, axis1=-2, axis2=-1).mean(-1)
    added = share * (mean if scale is None else scale)
    return matrix + added[..., None, None] * eye_like(matrix)


def with_jitter(change: Matrix, jitter: Float[Array, ""]) -> Matrix:
    """How a matrix with jitter moves if the matrix does; the transpose is the same."""
    share = jitter * jnp.diagonal(change, axis1=-2, axis2=-1).mean(-1)
    return change + share[..., None, None] * eye_like(change)


@jax.custom_jvp
def factor_of(prior: Matrix) -> Factor:
    """L⁻¹ and the jitter, of which the first has a derivative."""
    return factorized(prior)


@factor_of.defjvp
def _(primals, tangents):
    factor = factor_of(*primals)
    tangent = tangent_by(_inverse_tangent, _inverse_slopes, tuple(factor), tangents)
    return factor, Factor(tangent, jnp.zeros_like(factor.jitter))


# L⁻¹ moves by −Φ(L⁻¹ dK L⁻ᵀ) L⁻¹, where Φ is the lower triangle with half a diagonal.


def _inner_change(inverse: Matrix, jitter: Float[Array, ""], change: Matrix) -> Matrix:
    moved = inverse @ symmetric(with_jitter(change, jitter)) @ inverse.mT
    return lower_half(moved)


def _inverse_tangent(kept: tuple[Array, Array], changes: tuple[Matrix]) -> Matrix:
    return -lower_product(_inner_change(*kept, *changes), kept[0])


def _inverse_slopes(kept: tuple[Array, Array], slope: Matrix) -> tuple[Matrix]:
    inverse, jitter = kept
    inner = mirrored(lower_of_outer(slope, inverse))
    return (with_jitter(-congruent(inverse, inner) / 2, jitter),)


def inverse_factor(prior: Matrix) -> Matrix:
    """L⁻¹ itself."""
    return factor_of(prior).inverse


@jax.custom_jvp
def project(prior: Matrix, cross: Columns) -> Columns:
    """A = L⁻¹ k(Z, X), from k(Z, Z) and k(Z, X)."""
    return lower_apply(factorized(prior).inverse, cross)


@project.defjvp
def _(primals, tangents):
    prior, cross = primals
    factor = factor_of(prior)
    features = lower_apply(factor.inverse, cross)
    kept = (*factor, features)
    return features, tangent_by(_project_tangent, _project_slopes, kept, tangents)


def _project_tangent(
    kept: tuple[Array, Array, Array], changes: tuple[Matrix, Columns]
) -> Columns:
    (inverse, jitter, features), (of_prior, of_cross) = kept, changes
    moved = lower_apply(_inner_change(inverse, jitter, of_prior), features)
    return lower_apply(inverse, of_cross) - moved


def _project_slopes(
    kept: tuple[Array, Array, Array], slope: Columns
) -> tuple[Matrix, Columns]:
    inverse, jitter, features = kept
    inner = mirrored(lower_of_outer(slope, features))
    prior = -congruent(inverse, inner) / 2
    return with_jitter(prior, jitter), upper_apply(inverse, slope)
