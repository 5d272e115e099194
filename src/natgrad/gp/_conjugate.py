"""The best q under Gaussian noise, in closed form, from sums over the rows.

The sums do not depend on the noise. So it can change without another pass, and the sums
of some rows can be added to those of others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from natgrad.data._batches import Batch, blocks
from natgrad.families.gaussian import Moments
from natgrad.gp._parameters import Numbers
from natgrad.gp._projection import inverse_factor
from natgrad.gp._sparse import SparseGP
from natgrad.gp.kernels import AbstractKernel
from natgrad.gp.likelihoods import Gaussian
from natgrad.gp.means import AbstractMean
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import eye_like, inverse_upper, lower_apply


BLOCK = 2048
"""How many rows are projected at a time, to bound the memory."""


class Hyperparameters(NamedTuple):
    """A kernel, a Gaussian likelihood and a mean: a model without q.

    >>> from natgrad.gp import exact
    >>> hyper = exact.Hyperparameters(model.kernel, model.likelihood, model.mean)
    >>> print(f"{hyper.likelihood.variance:.2f}")
    0.01
    """

    kernel: AbstractKernel
    likelihood: Gaussian
    mean: AbstractMean


class RowSums(NamedTuple):
    """Sums over rows by weight w, of features a = L⁻¹ k(Z, x) and residuals r = y − m.

    `gram` is Σ w a aᵀ, and `moment` is Σ w a r.
    """

    gram: Float[Array, "M M"]
    moment: Float[Array, " M"]


def inverse_of_prior(hyper: Hyperparameters, inducing: Numbers) -> Float[Array, "M M"]:
    """L⁻¹ of the inducing inputs."""
    z = in_floating_point(hyper, inducing)
    return inverse_factor(hyper.kernel(z, z))


def row_sums(
    hyper: Hyperparameters, inducing: Numbers, batch: Batch, inverse: Array
) -> RowSums:
    """The sums over a batch; `inverse` is L⁻¹."""
    z = in_floating_point(hyper, inducing)

    def add(sums: RowSums, rows: Batch) -> tuple[RowSums, None]:
        x, y, weight = (jnp.asarray(each, z.dtype) for each in rows[:3])
        scale = jnp.sqrt(weight)
        weighted = lower_apply(inverse, hyper.kernel(z, x)) * scale[None]
        residual = (y - hyper.mean(x)) * scale
        found = RowSums(weighted @ weighted.T, weighted @ residual)
        return jax.tree.map(jnp.add, sums, found), None

    empty = RowSums(jnp.zeros_like(inverse), jnp.zeros_like(inverse[0]))
    return lax.scan(add, empty, blocks(batch, BLOCK))[0]


def in_floating_point(hyper: Hyperparameters, inducing: Numbers) -> Float[Array, "M D"]:
    """Inducing inputs as a model has them."""
    return SparseGP(hyper.kernel, hyper.likelihood, inducing, mean=hyper.mean).inducing


def root_of_covariance(sums: RowSums, variance: Array | float) -> Float[Array, "M M"]:
    """The Cholesky factor of the covariance of the best q.

    In whitened coordinates its precision is I + Σ w a aᵀ / σ².
    """
    precision = sums.gram / variance
    return inverse_upper(precision + eye_like(precision)).T


def solved(
    hyper: Hyperparameters, inducing: Numbers, sums: RowSums, root: Array
) -> SparseGP:
    """The model with the best q; `root` is that of its covariance."""
    variance = hyper.likelihood.variance
    q = Moments(root @ (root.T @ sums.moment) / variance, Sqrt(root))
    return SparseGP(hyper.kernel, hyper.likelihood, inducing, q, hyper.mean)
