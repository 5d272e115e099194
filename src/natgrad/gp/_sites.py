"""Sites: what data add to a prior, and the posterior that both make.

q(u) ∝ p(u) t(u), and the sites t(u) = exp(λᵀu − uᵀΛu/2) are what the data have added so
far. When the hyperparameters move with the sites held, q moves along with its prior,
and the bound sees further than with q itself held (Adam, Chang, Khan and Solin 2021).
At an optimal q both have the same derivative.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.data._batches import Batch
from natgrad.families.gaussian import AbstractGaussian, Statistics
from natgrad.gp._projection import factorized, jittered
from natgrad.gp._sparse import (
    Latent,
    Projection,
    SparseGP,
    elbo,
    marginals,
    prior_inverse,
    with_posterior,
)
from natgrad.gp.likelihoods import AbstractLikelihood
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.linalg._triangular import cholesky, eye_like, matvec, symmetric


class Sites(NamedTuple):
    """What data add to a prior, exp(linear · f − fᵀ precision f / 2).

    f is without the mean function. The precision is one number for each row, or a
    matrix over the variables of q if it is of all rows together.
    """

    linear: Float[Array, "*L N"]
    precision: Float[Array, "*L N"] | Float[Array, "*L N N"]


def row_sites(
    likelihood: AbstractLikelihood,
    mean: Latent,
    var: Latent,
    batch: Batch,
    prior_mean: Array,
) -> Sites:
    """The sites of rows to which a natural step of size 1 goes, from the marginals.

    A row of weight 0 has sites of zero.
    """
    weight = jnp.ones(len(batch.x)) if batch.weight is None else batch.weight

    def total(mean: Array, var: Array) -> Array:
        fit = expected_log_probs(likelihood, mean, var, batch)
        return jnp.asarray(weight, fit.dtype) @ fit

    by_mean, by_var = jax.grad(total, argnums=(0, 1))(mean, var)
    precision = -2 * by_var
    centred = mean - jnp.broadcast_to(prior_mean, mean.shape)
    return Sites(by_mean + precision * centred, precision)


def sites_at(model: SparseGP, rows: Projection, batch: Batch) -> Sites:
    """The same, of rows that a model has projected."""
    mean, var = marginals(model.posterior, rows)
    return row_sites(model.likelihood, mean, var, batch, rows.mean)


def project(features: Array, sites: Sites) -> Sites:
    """Sites of f as sites of the variables u of q, where f is featuresᵀ u."""
    linear, precision = sites
    if precision.ndim > linear.ndim:
        inner = symmetric(features @ precision @ features.mT)
    else:
        shape = (*precision.shape[:-1], *features.shape[-2:])
        scaled = jnp.broadcast_to(features, shape) * precision[..., None, :]
        inner = scaled @ features.mT
    return Sites(matvec(features, linear), inner)


def together(one: Sites, other: Sites) -> Sites:
    """The sites of all data, from those of two parts."""
    return jax.tree.map(jnp.add, one, other)


def condition(
    q: AbstractGaussian, sites: Sites, inverse: Array | None = None
) -> AbstractGaussian:
    """The posterior that the prior and sites make, in the coordinates of `q`.

    `inverse` is L⁻¹ where q is not whitened.
    """
    precision = sites.precision + _prior_precision(sites, inverse)
    return q.at_natural(Statistics(sites.linear, -precision / 2))


def to_sites(model: SparseGP) -> Sites:
    """The sites of a model's posterior, over the variables of q."""
    return sites_of(
        model.posterior, None if model.is_whitened else prior_inverse(model)
    )


def sites_of(q: AbstractGaussian, inverse: Array | None = None) -> Sites:
    """What q adds to its prior; `inverse` is L⁻¹ where q is not whitened."""
    theta = q.natural()
    sites = Sites(theta.first, -2 * theta.second)
    return Sites(theta.first, sites.precision - _prior_precision(sites, inverse))


def _prior_precision(sites: Sites, inverse: Array | None) -> Array:
    if inverse is None:
        return eye_like(sites.precision)
    return jnp.broadcast_to(inverse.mT @ inverse, sites.precision.shape)


def with_sites(model: SparseGP, other: SparseGP) -> SparseGP:
    """The model with the posterior that its own prior and the sites of another make.

    The sites are what the other's posterior adds to its prior. Both have the same
    inducing inputs, or ones that have moved along with the values there.

    >>> trained = gp.update(model, (x, y))
    >>> again = gp.with_sites(model, trained)
    >>> bool(abs(again.posterior.mean - trained.posterior.mean).max() < 1e-6)
    True
    """
    sites, inverse = to_sites(other), None
    if model.is_whitened:
        # u = L v: with W the other L⁻¹ times this L, v has precision I + Wᵀ Λ W.
        prior = model.kernel(model.inducing, model.inducing)
        root = cholesky(jittered(prior, factorized(prior).jitter))
        sites = project(jnp.tril(prior_inverse(other) @ root).mT, sites)
    else:
        inverse = prior_inverse(model)
    return with_posterior(model, condition(model.posterior, sites, inverse))


def dual_elbo(
    model: SparseGP, other: SparseGP, batch: Batch, num_data: int | None = None
) -> Float[Array, ""]:
    """The ELBO as a function of the hyperparameters, with the sites of `other` fixed.

    The posterior of `model` gives only the coordinates. After a step on the
    hyperparameters, `with_sites` moves q with its prior.

    >>> trained = gp.update(model, (x, y))
    >>> batch = natgrad.data.Batch(x, y)
    >>> gap = gp.dual_elbo(trained, trained, batch) - gp.elbo(trained, batch)
    >>> bool(abs(gap) < 1e-6)
    True
    """
    return elbo(with_sites(model, other), batch, num_data)
