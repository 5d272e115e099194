"""Products and factors of matrices, written for what a CPU does fast."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from natgrad._linear_map import tangent_by
from natgrad._runtime.explicit_mesh import on_automatic_axes


Scalar = Float[Array, "*batch"]
Vector = Float[Array, "*batch M"]
Matrix = Float[Array, "*batch M M"]
Columns = Float[Array, "*batch M K"]
Shared = Float[Array, "... M K"]
"""Columns, or one set of them for a whole batch of matrices."""

BLOCK = 256
"""Triangular products are cut in blocks above this size."""

LEAF = 64
"""Triangular matrices up to this size are inverted by a solve."""

STRIPS = 4
"""Products with a large triangular matrix are cut in as many strips."""


def symmetric(matrix: Matrix) -> Matrix:
    """The symmetric part."""
    return (matrix + matrix.mT) / 2


def outer(a: Vector, b: Vector) -> Matrix:
    """a bᵀ"""
    return a[..., :, None] * b[..., None, :]


def matvec(matrix: Shared, vector: Float[Array, "... K"]) -> Float[Array, "... M"]:
    return (matrix @ vector[..., None])[..., 0]


def transposed(matrix: Matrix) -> Matrix:
    """The transpose as an array of its own.

    A product with a transposed left operand costs XLA several times a plain one on a
    CPU; behind a barrier the transpose is copied, and the product is plain.
    """
    return lax.optimization_barrier(matrix.mT)


# jaxlib cuts a batch of triangular solves into tasks for the threads that may all be
# waiting for such tasks. Where cores are few it then waits for ever. These three handle
# one matrix at a time, under any `vmap`; the functions below give them derivatives.


@sequential_vmap
def _factor(matrix: Array) -> Array:
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@sequential_vmap
def _solution(lower: Array, columns: Array) -> Array:
    return solve_triangular(lower, columns, lower=True)


@sequential_vmap
def _solution_transposed(lower: Array, columns: Array) -> Array:
    return solve_triangular(lower, columns, lower=True, trans=1)


def _each(function: Callable[..., Array], *batches: Array) -> Array:
    """Applies a function of one matrix, or of several, to each of a batch."""
    batch = batches[0].shape[:-2]
    if not batch:
        return function(*batches)
    flat = jax.vmap(function)(
        *(each.reshape((-1, *each.shape[-2:])) for each in batches)
    )
    return flat.reshape((*batch, *flat.shape[-2:]))


@on_automatic_axes
def cholesky(matrix: Matrix) -> Matrix:
    """The Cholesky factor of what is symmetric already, NaN where there is none."""
    return _cholesky(matrix)


@jax.custom_jvp
def _cholesky(matrix: Matrix) -> Matrix:
    return _each(_factor, matrix)


@_cholesky.defjvp
def _cholesky_jvp(primals: tuple[Matrix], tangents: tuple[Matrix]):
    root = _cholesky(*primals)
    (change,) = tangents
    inner = solve_lower(root, solve_lower(root, change.mT).mT)
    return root, root @ lower_half(inner)


@on_automatic_axes
def solve_lower(lower: Matrix, columns: Columns) -> Columns:
    """L⁻¹ x for lower triangular L; x has columns."""
    return lax.custom_linear_solve(
        lambda x: jnp.tril(lower) @ x,
        columns,
        lambda _, x: _each(_solution, lower, x),
        lambda _, x: _each(_solution_transposed, lower, x),
    )


@on_automatic_axes
def solve_lower_transposed(lower: Matrix, columns: Columns) -> Columns:
    """L⁻ᵀ x for lower triangular L; x has columns."""
    return lax.custom_linear_solve(
        lambda x: jnp.tril(lower).mT @ x,
        columns,
        lambda _, x: _each(_solution_transposed, lower, x),
        lambda _, x: _each(_solution, lower, x),
    )


def inverse_root(matrix: Matrix) -> Matrix:
    """The Cholesky factor of the inverse: U⁻ᵀ, where U Uᵀ is the matrix."""
    # Symmetric, or the gradient at the matrix would be in one triangle.
    return transposed(inverse_upper(symmetric(matrix)))


@on_automatic_axes
def eye_like(matrix: Matrix) -> Matrix:
    return jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)


@on_automatic_axes
def for_each(column: Float[Array, "*batch M 1"], columns: Shared) -> Shared:
    """The columns once for each member of a batch, which has one column of its own."""
    return jnp.broadcast_to(columns, (*column.shape[:-2], *columns.shape[-2:]))


def log_det(matrix: Matrix) -> Scalar:
    """log |M| of a positive definite matrix, NaN where it is not."""
    root = cholesky(symmetric(matrix))
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


def _lower_blocks(top: Array, corner: Array, bottom: Array) -> Array:
    zero = jnp.zeros((*top.shape[:-1], bottom.shape[-1]), top.dtype)
    upper = jnp.concatenate([top, zero], -1)
    return jnp.concatenate([upper, jnp.concatenate([corner, bottom], -1)], -2)


def lower_half(matrix: Matrix) -> Matrix:
    """Φ: the lower triangle, its diagonal halved, so that X = Φ(X) + Φ(X)ᵀ."""
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    return jnp.tril(matrix) - diagonal[..., None] * eye_like(matrix) / 2


def mirrored(lower: Matrix) -> Matrix:
    """The symmetric matrix with this lower triangle; what is above is not read."""
    return jnp.tril(lower) + jnp.tril(lower, -1).mT


@on_automatic_axes
def inverse_cholesky(matrix: Matrix, leaf: int = LEAF) -> Matrix:
    """L⁻¹ of the Cholesky factor L, NaN where there is none.

    By halves, so that all but the leaves are plain products: XLA's triangular solve
    with as many right-hand sides takes two to three times as long.
    """
    size = matrix.shape[-1]
    if size <= leaf:
        return _inverse_of_leaf(matrix)
    # Halves of whole leaves, or a leaf would be cut by every level of the recursion.
    k = -(-size // (2 * leaf)) * leaf if size > 2 * leaf else size // 2
    top = inverse_cholesky(matrix[..., :k, :k], leaf)
    corner = matrix[..., k:, :k] @ top.mT
    bottom = inverse_cholesky(matrix[..., k:, k:] - corner @ corner.mT, leaf)
    return _lower_blocks(top, -(bottom @ (corner @ top)), bottom)


@jax.custom_jvp
def _inverse_of_leaf(matrix: Matrix) -> Matrix:
    return _each(_inverse_of_one, matrix)


@sequential_vmap
def _inverse_of_one(matrix: Array) -> Array:
    # LAPACK reads columns. Of a symmetric matrix they are the rows, which are there;
    # asked for columns, XLA would compute the matrix itself in that order.
    root = _factor(matrix.mT)
    return solve_triangular(root, eye_like(root), lower=True)


@_inverse_of_leaf.defjvp
def _inverse_of_leaf_jvp(primals: tuple[Matrix], tangents: tuple[Matrix]):
    inverse = _inverse_of_leaf(*primals)
    (change,) = tangents
    return inverse, -lower_half(inverse @ change.mT @ inverse.mT) @ inverse


def inverse_upper(matrix: Matrix) -> Matrix:
    """U⁻¹ of the upper triangular U with U Uᵀ = matrix."""
    return jnp.flip(inverse_cholesky(jnp.flip(matrix, (-2, -1))), (-2, -1))


def lower_apply(lower: Matrix, columns: Columns) -> Columns:
    """A x for lower triangular A, in strips that skip its zeros where that pays."""
    strips = [lower[..., i:j, :j] @ columns[..., :j, :] for i, j in _cuts(lower)]
    return jnp.concatenate(strips, -2)


@jax.custom_jvp
def upper_apply(lower: Matrix, columns: Shared) -> Columns:
    """Aᵀ x for lower triangular A; one x may be shared by all A of a batch.

    Its derivative is written out, or it would be a product with a transposed left side.
    """
    upper = transposed(lower)
    strips = [upper[..., i:j, i:] @ columns[..., i:, :] for i, j in _cuts(lower)]
    return jnp.concatenate(strips, -2)


@upper_apply.defjvp
def _(primals: tuple[Matrix, Shared], tangents: tuple[Matrix, Shared]):
    tangent = tangent_by(_upper_apply_tangent, _upper_apply_slopes, primals, tangents)
    return upper_apply(*primals), tangent


def _upper_apply_tangent(kept: tuple[Matrix, Shared], changes: tuple[Matrix, Shared]):
    (lower, columns), (of_lower, of_columns) = kept, changes
    return upper_apply(jnp.tril(of_lower), columns) + upper_apply(lower, of_columns)


def _upper_apply_slopes(kept: tuple[Matrix, Shared], slope: Columns):
    lower, columns = kept
    slope_of_lower = jnp.tril(lower_of_outer(columns, slope))
    if columns.ndim == lower.ndim:
        return slope_of_lower, lower_apply(lower, slope)
    size = columns.shape[-2]
    side_by_side = jnp.moveaxis(lower.reshape((-1, size, size)), 0, 1)
    flat = slope.reshape((-1, slope.shape[-1]))
    return slope_of_lower, side_by_side.reshape((size, -1)) @ flat


def lower_of_outer(a: Shared, b: Shared) -> Array:
    """The lower triangle of A Bᵀ; what stands above it means nothing."""
    size = a.shape[-2]
    b = b.mT
    strips = [_widened(a[..., i:j, :] @ b[..., :j], size) for i, j in _cuts(a)]
    return jnp.concatenate(strips, -2)


@jax.custom_jvp
def quadratic_form(matrix: Matrix, columns: Shared) -> Float[Array, "*batch K"]:
    """xᵀ S x of each column x, for symmetric S.

    Its derivative is written out, because S x serves it again.
    """
    product = matrix @ columns
    return (jnp.broadcast_to(columns, product.shape) * product).sum(-2)


@quadratic_form.defjvp
def _(primals: tuple[Matrix, Shared], tangents: tuple[Matrix, Shared]):
    matrix, columns = primals
    product = matrix @ columns
    value = (jnp.broadcast_to(columns, product.shape) * product).sum(-2)
    kept = (columns, product)
    tangent = tangent_by(_quadratic_tangent, _quadratic_slopes, kept, tangents)
    return value, tangent


def _quadratic_tangent(kept: tuple[Shared, Columns], changes: tuple[Matrix, Shared]):
    (columns, product), (of_matrix, of_columns) = kept, changes
    moved = jnp.broadcast_to(of_columns, product.shape)
    return quadratic_form(of_matrix, columns) + 2 * (moved * product).sum(-2)


def _quadratic_slopes(kept: tuple[Shared, Columns], slope: Array):
    columns, product = kept
    shared = jnp.broadcast_to(columns, product.shape)
    slope_of_columns = 2 * product * slope[..., None, :]
    if columns.ndim < product.ndim:
        slope_of_columns = slope_of_columns.sum(tuple(range(product.ndim - 2)))
    slope_of_matrix = mirrored(lower_of_outer(shared * slope[..., None, :], columns))
    return slope_of_matrix, slope_of_columns


def congruent(lower: Matrix, middle: Matrix) -> Matrix:
    """Aᵀ S A for lower triangular A and symmetric S."""
    size, cuts = lower.shape[-1], _cuts(lower)
    if len(cuts) == 1:
        return transposed(lower) @ (middle @ lower)
    upper = transposed(lower)
    right = [middle[..., i:] @ lower[..., i:, i:j] for i, j in cuts]
    right = jnp.concatenate(right, -1)
    strips = [_widened(upper[..., i:j, i:] @ right[..., i:, :j], size) for i, j in cuts]
    return mirrored(jnp.concatenate(strips, -2))


def _cuts(rows: Shared) -> list[tuple[int, int]]:
    """Where the rows are cut into strips."""
    size = rows.shape[-2]
    number = STRIPS if size > 2 * BLOCK else 1
    edges = [round(size * i / number) for i in range(number + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _widened(strip: Array, size: int) -> Array:
    padding = [(0, 0)] * (strip.ndim - 1) + [(0, size - strip.shape[-1])]
    return jnp.pad(strip, padding)


def pack_lower(matrix: Matrix) -> list[Array]:
    """The lower triangle in two arrays that have no room for more.

    Its lower right quarter goes into the empty half of the upper left one.
    """
    size = matrix.shape[-1]
    odd, half = size % 2, (size + 1) // 2
    blank = [(0, 0)] * (matrix.ndim - 2)
    matrix = jnp.pad(matrix, [*blank, (0, odd), (0, odd)])
    left, right = matrix[..., :half, :half], matrix[..., half:, half:]
    left = jnp.pad(jnp.tril(left), [*blank, (0, 0), (0, 1)])
    right = jnp.pad(jnp.triu(right.mT), [*blank, (0, 0), (1, 0)])
    return [left + right, matrix[..., half:, :half]]


def unpack_lower(packed: list[Array], size: int) -> Matrix:
    """The lower triangular matrix of `size` rows that `pack_lower` was given."""
    triangles, below = packed
    left = jnp.tril(triangles[..., :-1])
    right = jnp.triu(triangles[..., 1:]).mT
    return _lower_blocks(left, below, right)[..., :size, :size]
