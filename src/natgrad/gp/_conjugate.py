"""The best q under Gaussian noise, in closed form, from sums over the rows.

The sums do not depend on the noise. So it can change without another pass, and the sums
of some rows can be added to those of others.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from natgrad.data._batch import Batch
from natgrad.families.gaussian import Moments
from natgrad.gp._projection import inverse_factor
from natgrad.gp._sparse import SparseGP
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import eye_like, inverse_upper, lower_apply


BLOCK = 2048
"""How many rows are projected at a time, to bound the memory."""


class RowSums(NamedTuple):
    """Sums over rows by weight w, of features a = L⁻¹ k(Z, x) and residuals r = y − m.

    `gram` is Σ w a aᵀ, and `moment` is Σ w a r.
    """

    gram: Float[Array, "M M"]
    moment: Float[Array, " M"]


def inverse_of_prior(of: Any, inducing: Any) -> Float[Array, "M M"]:
    """L⁻¹ of the inducing inputs; `of` is a kernel, a likelihood and a mean."""
    z = in_floating_point(of, inducing)
    return inverse_factor(of.kernel(z, z))


def row_sums(of: Any, inducing: Any, batch: Batch, inverse: Any) -> RowSums:
    """The sums over a batch; `inverse` is L⁻¹."""
    z = in_floating_point(of, inducing)

    def add(sums: RowSums, rows: Any) -> tuple[RowSums, None]:
        x, y, weight = rows
        scale = jnp.sqrt(weight)
        weighted = lower_apply(inverse, of.kernel(z, x)) * scale[None]
        residual = (y - of.mean(x)) * scale
        found = RowSums(weighted @ weighted.T, weighted @ residual)
        return jax.tree.map(jnp.add, sums, found), None

    count = jnp.ones(len(batch.x)) if batch.weight is None else batch.weight
    size = min(len(batch.x), BLOCK)
    columns = [_blocks(each, size, z.dtype) for each in (batch.x, batch.y)]
    columns.append(_blocks(count, size, z.dtype, "constant"))
    empty = RowSums(jnp.zeros_like(inverse), jnp.zeros_like(inverse[0]))
    return lax.scan(add, empty, tuple(columns))[0]


def in_floating_point(of: Any, inducing: Any) -> Float[Array, "M D"]:
    """Inducing inputs as a model has them."""
    return SparseGP(of.kernel, of.likelihood, inducing, mean=of.mean).inducing


def _blocks(column: Any, size: int, dtype: Any, mode: str = "edge") -> Array:
    """Rows in blocks; the last is filled with its last row, or with zeros."""
    column = jnp.asarray(column, dtype)
    fill = [(0, -len(column) % size)] + [(0, 0)] * (column.ndim - 1)
    return jnp.pad(column, fill, mode=mode).reshape(-1, size, *column.shape[1:])


def root_of_covariance(sums: RowSums, variance: Any) -> Float[Array, "M M"]:
    """The Cholesky factor of the covariance of the best q.

    In whitened coordinates its precision is I + Σ w a aᵀ / σ².
    """
    precision = sums.gram / variance
    return inverse_upper(precision + eye_like(precision)).T


def solved(of: Any, inducing: Any, sums: RowSums, root: Any) -> SparseGP:
    """The model with the best q; `root` is that of its covariance.

    `of` is a kernel, Gaussian noise and a mean.
    """
    variance = of.likelihood.variance
    q = Moments(root @ (root.T @ sums.moment) / variance, Sqrt(root))
    return SparseGP(of.kernel, of.likelihood, inducing, q, of.mean)
