"""What a model keeps of rows that are gone, as its inducing inputs move.

The sites t of such rows are a Gaussian function of f at the inducing inputs of their
time, a. A model with other inducing inputs and hyperparameters sees them by
E_q[log t(a)], which is linear in the moments of q: moved, they are sites again, and
what the move loses is known (Bui, Nguyen and Turner 2017; Chang et al. 2023).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.data._batches import Batch
from natgrad.families.gaussian import AbstractGaussian, Statistics
from natgrad.gp._dual import Sites, to_sites
from natgrad.gp._profile import RowSites, added, over_q, row_sites
from natgrad.gp._projection import inverse_factor
from natgrad.gp._sparse import Projection, SparseGP
from natgrad.linalg._triangular import matvec, symmetric


class OldSites(NamedTuple):
    """Sites, the inducing inputs that they belong to, and the mean function there."""

    sites: Sites
    inducing: Float[Array, "M D"]
    mean: Float[Array, "*L M"]


class SeenSites(NamedTuple):
    """Old sites as a model sees them: linear · v − vᵀ precision v / 2 + constant.

    `lost` is what its inducing inputs cost of that, in nats.
    """

    linear: Float[Array, "*L M"]
    precision: Float[Array, "*L M M"]
    constant: Float[Array, ""]
    lost: Float[Array, ""]

    def expected(self, q: AbstractGaussian) -> Float[Array, ""]:
        """E_q[log t], up to a constant that nothing changes."""
        mean, factor = q.location(), q.factor()
        square = (factor * (self.precision @ factor)).sum()
        square += (mean * matvec(self.precision, mean)).sum()
        return (self.linear * mean).sum() - square / 2 + self.constant


def sites_of(model: SparseGP) -> OldSites:
    """All that q knows."""
    sites = to_sites(model)
    return OldSites(sites, model.inducing, _mean_of(model, sites.linear))


def _mean_of(model: SparseGP, like: Array) -> Array:
    return jnp.broadcast_to(model.mean(model.inducing), like.shape)


def seen(model: SparseGP, old: OldSites, rows: Projection | None = None) -> SeenSites:
    """Old sites, from the inducing inputs and with the hyperparameters of a model."""
    (linear, precision, inverse), z, mean = old
    rows = model.project(z) if rows is None else rows
    rest = model.kernel(z, z) - rows.features.mT @ rows.features
    features = over_q(rows)
    shift = jnp.broadcast_to(rows.mean, mean.shape) - mean
    if not model.is_whitened:  # the sites are over u itself
        inverse = jnp.eye(len(z), dtype=z.dtype)
    turned, moved = inverse @ features.mT, matvec(inverse, shift)
    pulled = linear - matvec(precision, moved)
    rest = jnp.broadcast_to(inverse @ rest @ inverse.mT, precision.shape)
    lost = (precision * rest).sum() / 2
    constant = ((linear + pulled) * moved).sum() / 2 - lost
    inner = symmetric(turned.mT @ precision @ turned)
    return SeenSites(matvec(turned.mT, pulled), inner, constant, lost)


class Kept(NamedTuple):
    """What old inducing inputs say of f at rows that were kept: weights · u + offset.

    These rows stand for all that are gone, and have their precision.
    """

    x: Float[Array, "R D"]
    weights: Float[Array, "*S M R"]
    offset: Float[Array, "*L R"]
    precision: Float[Array, " R"]


def kept_rows(model: SparseGP, old: OldSites, x: Array, precision: Array) -> Kept:
    """Rows that were kept, as old inducing inputs explain them by a model's kernel."""
    z = old.inducing
    inverse = inverse_factor(model.kernel(z, z))
    weights = inverse.mT @ (inverse @ model.kernel(z, x))
    said = _combined(old.mean, weights)
    shift = old.mean - jnp.broadcast_to(model.mean(z), old.mean.shape)
    own = jnp.broadcast_to(model.mean(x), said.shape)
    return Kept(x, weights, own + shift.mean(-1, keepdims=True) - said, precision)


def strayed(
    model: SparseGP, old: OldSites, kept: Kept, rows: Projection, at_old: Projection
) -> Projection:
    """f at kept rows less what old inducing inputs said of it, as a model has both."""
    (x, weights, offset, _), z = kept, old.inducing
    features = rows.features - at_old.features @ weights
    cross, own = model.kernel(z, x), model.kernel(z, z) @ weights
    rest = model.kernel.diag(x) + (weights * (own - 2 * cross)).sum(-2)
    over = lambda mean: jnp.broadcast_to(mean, offset.shape)
    mean = over(rows.mean) - over(_combined(at_old.mean, weights)) - offset
    return Projection(features, rest - (features**2).sum(-2), mean, rows.inverse)


def part(rows: Projection, begin: int, end: int | None) -> Projection:
    """Some of the rows."""
    features, rest, mean, inverse = rows
    cut = lambda values: values[..., begin:end]
    return Projection(cut(features), cut(rest), cut(mean), inverse)


def _combined(values: Array, weights: Array) -> Array:
    return (values[..., None, :] @ weights)[..., 0, :]


def total(old: SeenSites, rows: Projection, sites: RowSites) -> Statistics:
    """What old sites and those of some rows add to the prior: λ and Λ."""
    linear, precision = added(rows, sites)
    return Statistics(old.linear + linear, old.precision + precision)


def nothing(model: SparseGP) -> OldSites:
    """The sites of no rows."""
    zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: to_sites(model)))
    return at_model(model, Statistics(zero.linear, zero.precision))


def at_model(model: SparseGP, known: Statistics) -> OldSites:
    """What was added to a model's prior, as sites at its inducing inputs."""
    z = model.inducing
    inverse = inverse_factor(model.kernel(z, z))
    return OldSites(Sites(*known, inverse), z, _mean_of(model, known.first))


def scaled(old: OldSites, factor: float) -> OldSites:
    """Sites that count for so much of what they did."""
    linear, precision, inverse = old.sites
    return old._replace(sites=Sites(factor * linear, factor * precision, inverse))


def information(model: SparseGP, old: OldSites, new: Batch) -> Float[Array, " K"]:
    """How precisely old sites and new rows know f: at each old input, at each row.

    Half of it, times the prior variance that inducing inputs leave there, is about what
    these inducing inputs lose, in nats.
    """
    _, precision, inverse = old.sites
    if model.is_whitened:
        precision = inverse.mT @ precision @ inverse
    own = jnp.diagonal(precision, axis1=-2, axis2=-1)
    rows = row_sites(model, model.project(jnp.asarray(new.x)), new).precision
    both = jnp.maximum(jnp.concatenate([own, rows], -1), 0)
    return both.mean(0) if both.ndim > 1 else both
