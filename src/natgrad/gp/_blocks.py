"""Rows conditioned on rows: sites under a prior, in closed form, block by block.

All functions are of one block and one latent function; `jax.vmap` makes them functions
of many. With s the root of the precision of the sites and K the covariance of the prior
all follow from (I + s K s)⁻¹, whose eigenvalues are between 0 and 1 whatever the sites.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from natgrad.gp._sites import Sites
from natgrad.linalg._triangular import (
    cholesky,
    inverse_cholesky,
    solve_lower,
    solve_lower_transposed,
)


Scalar = Float[Array, ""]
Vector = Float[Array, " B"]
Matrix = Float[Array, "B B"]


@jax.custom_vjp
def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a positive definite matrix, NaN where it is not."""
    root = inverse_cholesky(matrix)
    return root.mT @ root


def _inverse_forward(matrix: Matrix) -> tuple[Matrix, Matrix]:
    found = inverse(matrix)
    return found, found


def _inverse_backward(found: Matrix, slope: Matrix) -> tuple[Matrix]:
    return (-(found @ ((slope + slope.mT) / 2) @ found),)


inverse.defvjp(_inverse_forward, _inverse_backward)


def scaled(sites: Sites) -> tuple[Vector, Vector]:
    """s, and λ/s: the targets of the sites in units of their noise.

    A row without precision is a gap: its target is 0 ± 1 and has nothing to do with f.
    """
    is_site = sites.precision > 0
    root = jnp.sqrt(jnp.where(is_site, sites.precision, 1))
    return jnp.where(is_site, root, 0), jnp.where(is_site, sites.linear / root, 0)


def whitened(cov: Matrix, scale: Vector) -> Matrix:
    """I + s K s."""
    return jnp.eye(len(scale), dtype=cov.dtype) + scale[:, None] * cov * scale[None, :]


def left_out(
    cov: Matrix,
    sites: Sites,
    is_near: Bool[Array, "B B"] | None = None,
    shared: tuple[Vector, Float[Array, "B M"]] | None = None,
) -> tuple[Vector, Vector]:
    """The mean and the variance of f at each row, given all sites but its own.

    With `is_near`, which pairs of rows are of one group, the sites of its group are
    left out too. With inducing variables f has a part that other blocks share: `shared`
    is its mean at the rows given all blocks, and a root of its covariance.
    """
    scale, target = scaled(sites)
    known = inverse(whitened(cov, scale))
    error = known @ target
    if shared is not None:
        error -= known @ (scale * shared[0])
        seen = known @ (scale[:, None] * shared[1])
        known -= seen @ seen.mT
    if is_near is None:
        spread = 1 / jnp.diagonal(known)
        error = error * spread
    else:
        own = inverse(jnp.where(is_near, known, 0))
        error, spread = own @ error, jnp.diagonal(own)
    scale = jnp.where(scale > 0, scale, 1)
    return (target - error) / scale, (spread - 1) / scale**2


def marginals(cov: Matrix, sites: Sites) -> tuple[Vector, Vector, Scalar]:
    """The mean and the variance of f at each row given all sites, and KL(q ‖ prior)."""
    scale, target = scaled(sites)
    root = inverse_cholesky(whitened(cov, scale))
    solution = root.mT @ (root @ target)
    mean = cov @ (scale * solution)
    seen = root @ (scale[:, None] * cov)
    log_det = -jnp.log(jnp.diagonal(root)).sum()
    trace = (root**2).sum() - len(scale)
    kl = log_det + (trace + mean @ (scale * solution)) / 2
    return mean, jnp.diagonal(cov) - (seen**2).sum(0), kl


class Conditional(NamedTuple):
    """f at new rows given a block: mean and variance, and s (I + sKs)⁻¹ s k(X, x)."""

    mean: Float[Array, " Q"]
    var: Float[Array, " Q"]
    weights: Float[Array, "B Q"]


def conditional(
    cov: Matrix, cross: Float[Array, "B Q"], prior: Float[Array, " Q"], sites: Sites
) -> Conditional:
    """f at new rows, given the sites of a block."""
    scale, target = scaled(sites)
    root = cholesky(whitened(cov, scale))
    columns = jnp.concatenate([scale[:, None] * cross, target[:, None]], 1)
    solved = solve_lower(root, columns)
    seen, target = solved[:, :-1], solved[:, -1]
    weights = scale[:, None] * solve_lower_transposed(root, seen)
    return Conditional(target @ seen, prior - (seen**2).sum(0), weights)


class Gram(NamedTuple):
    """What rows add to inducing variables v: to their precision, and to its product
    with their mean."""

    precision: Float[Array, "M M"]
    linear: Float[Array, " M"]


def gram(cov: Matrix, features: Float[Array, "M B"], sites: Sites) -> Gram:
    """The sites of a block as those of v, if f is φᵀv plus a part with covariance."""
    scale, target = scaled(sites)
    root = cholesky(whitened(cov, scale))
    columns = jnp.concatenate([scale[:, None] * features.mT, target[:, None]], 1)
    solved = solve_lower(root, columns)
    seen, target = solved[:, :-1], solved[:, -1]
    return Gram(seen.mT @ seen, target @ seen)


def widened(sites: Sites, rest: Float[Array, "*L N"]) -> Sites:
    """Sites as they are seen through more noise, of this variance."""
    share = 1 / (1 + sites.precision * rest)
    return Sites(share * sites.linear, share * sites.precision)
