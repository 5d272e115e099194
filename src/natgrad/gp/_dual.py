"""The posterior as prior times sites: the dual form of a sparse Gaussian process.

q(u) ∝ p(u) t(u), and the sites t(u) = exp(λᵀu − uᵀΛu/2) are what the data have added so
far. When the hyperparameters move with the sites held, q moves along with its prior,
and the bound sees further than with q itself held (Adam, Chang, Khan and Solin 2021).
At an optimal q both have the same derivative.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.data._batches import Batch
from natgrad.families.gaussian import Statistics
from natgrad.gp._projection import factorized, inverse_factor, jittered
from natgrad.gp._sparse import SparseGP, elbo
from natgrad.linalg._triangular import cholesky, eye_like, symmetric, transposed


class Sites(NamedTuple):
    """What q adds to its prior, in natural parameters.

    A whitened q depends on the L at which the sites were taken, so L⁻¹ is stored with
    them. `to_sites` makes them.

    >>> sites = gp.to_sites(gp.update(model, (x, y)))
    >>> sites.linear.shape, sites.precision.shape
    ((8,), (8, 8))
    """

    linear: Float[Array, "*L M"]
    precision: Float[Array, "*L M M"]
    inverse: Float[Array, "*S M M"]


def to_sites(model: SparseGP) -> Sites:
    """The sites of a model's posterior.

    >>> sites = gp.to_sites(model)  # q is the prior, so the sites are zero
    >>> bool((abs(sites.precision) < 1e-9).all())
    True
    """
    prior = model.kernel(model.inducing, model.inducing)
    inverse = factorized(prior).inverse
    theta = model.posterior.natural()
    precision = -2 * theta.second
    if model.is_whitened:
        return Sites(theta.first, precision - eye_like(precision), inverse)
    own = transposed(inverse) @ inverse
    precision -= jnp.broadcast_to(own, precision.shape)
    return Sites(theta.first, precision, inverse)


def with_sites(model: SparseGP, sites: Sites) -> SparseGP:
    """The model with the posterior that its own prior and the given sites make.

    >>> trained = gp.update(model, (x, y))
    >>> again = gp.with_sites(model, gp.to_sites(trained))
    >>> bool(abs(again.posterior.mean - trained.posterior.mean).max() < 1e-6)
    True
    """
    prior = model.kernel(model.inducing, model.inducing)
    if model.is_whitened:
        # u = L v: with W the old L⁻¹ times the new L, v′ has precision I + Wᵀ Λ W.
        root = cholesky(jittered(prior, factorized(prior).jitter))
        change = jnp.tril(sites.inverse @ root)
        inner = change.mT @ sites.precision @ change
        linear = (change.mT @ sites.linear[..., None])[..., 0]
        precision = eye_like(inner) + symmetric(inner)
    else:
        inverse = inverse_factor(prior)
        own = inverse.mT @ inverse
        linear = sites.linear
        precision = sites.precision + jnp.broadcast_to(own, sites.precision.shape)
    posterior = model.posterior.at_natural(Statistics(linear, -precision / 2))
    return eqx.tree_at(lambda model: model.posterior, model, posterior)


def dual_elbo(
    model: SparseGP, sites: Sites, batch: Batch, num_data: int | None = None
) -> Float[Array, ""]:
    """The ELBO as a function of the hyperparameters, with the sites fixed.

    The posterior of `model` gives only the coordinates. After a step on the
    hyperparameters, `with_sites` moves q with its prior.

    >>> trained = gp.update(model, (x, y))
    >>> sites, batch = gp.to_sites(trained), natgrad.data.Batch(x, y)
    >>> gap = gp.dual_elbo(trained, sites, batch) - gp.elbo(trained, batch)
    >>> bool(abs(gap) < 1e-6)
    True
    """
    return elbo(with_sites(model, sites), batch, num_data)
