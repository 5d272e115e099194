"""What a model learns from more rows, once it has seen others that are gone."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array

from natgrad._runtime.programs import filter_jit
from natgrad._runtime.threads import few_threads, largest
from natgrad.data._batches import Batch, as_batch, padded, pieces
from natgrad.errors import FitError, InputWarning, warn
from natgrad.families.gaussian import Moments
from natgrad.gp._fit import check
from natgrad.gp._profile import total_weight
from natgrad.gp._sites import (
    Sites,
    condition,
    project,
    sites_at,
    sites_of,
    to_sites,
    together,
)
from natgrad.gp._sparse import (
    Projection,
    SparseGP,
    marginals,
    projected_elbo,
    with_posterior,
)
from natgrad.gp.likelihoods import Gaussian
from natgrad.linalg import Sqrt
from natgrad.linalg._triangular import eye_like, matvec
from natgrad.train._profile import minimize_distributions


__all__ = ["update"]

STEPS = 20
"""Natural steps on each piece, at most; Gaussian noise needs none."""

PIECE = 2048
"""How many rows are looked at together."""

UNSEEN = 0.5
"""The part of the prior variance that inducing inputs may leave without a warning."""


def update(model: SparseGP, data: Any) -> SparseGP:
    """The model after more rows; hyperparameters and inducing inputs stay.

    q becomes the best Gaussian for p(y | f) q(u), so you can pass rows in pieces and
    discard them. With a Gaussian likelihood the result is that of all rows at once, for
    the same hyperparameters and inducing inputs. natgrad warns if the rows are far from
    the inducing inputs.

    Inside `jax.jit` and `jax.vmap` it neither raises nor warns, so you can ask what
    many hypothetical rows would change. With a Gaussian likelihood it has a gradient.

    Raises:
        InputError: If the rows do not fit the model.
        FitError: If the ELBO of the rows is not finite.

    >>> first = gp.update(model, (x[:25], y[:25]))
    >>> both = gp.update(first, (x[25:], y[25:]))
    >>> whole = gp.update(model, (x, y))
    >>> bool(abs(both.posterior.mean - whole.posterior.mean).max() < 1e-6)
    True
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, data))):
        return _updated(model, Batch(*data))[0]
    batch = as_batch(data)
    check(model, batch, "data")
    left = 0.0
    for piece in map(padded, pieces(batch, PIECE)):
        with few_threads(largest(model)):
            model, share, is_finite = _updated(model, piece)
        if not is_finite:
            raise FitError("the ELBO of these rows is not finite; nothing was learned")
        left += float(share * total_weight(piece))
    total = float(total_weight(batch))
    if left > UNSEEN * total:
        warn(
            f"the inducing inputs see little of these {len(batch.x)} rows: they leave "
            f"{left / total:.0%} of the prior variance there. They were chosen from "
            "the first rows: fit on rows from the whole range, or on all of them",
            InputWarning,
        )
    return model


@filter_jit
def _updated(model: SparseGP, batch: Batch) -> tuple[SparseGP, Array, Array]:
    """The model whose q has the sites of more rows, and whether it is finite.

    Between them, the part of the prior variance that inducing inputs leave at the rows.
    """
    q, x = model.posterior, jnp.asarray(batch.x)
    rows, prior = model.project(x), model.kernel.diag(x)
    if isinstance(model.likelihood, Gaussian):  # sites do not depend on q
        sites = project(rows.over_q, sites_at(model, rows, batch))
    else:
        sites = _found(model, rows, batch)
    q = condition(q, together(to_sites(model), sites), rows.inverse)
    weight = jnp.ones(len(x)) if batch.weight is None else jnp.asarray(batch.weight)
    weight = weight.astype(prior.dtype)
    left = (jnp.maximum(rows.rest, 0) @ weight).sum() / (prior @ weight).sum()
    return with_posterior(model, q), left, q.is_inside().all()


def _found(model: SparseGP, rows: Projection, batch: Batch) -> Sites:
    """The sites of rows, over the variables of q, by guarded natural steps.

    q is N(0, I) in the coordinates w of u = m + F w. Few rows see few directions of w,
    and the steps are taken in these alone.
    """
    q, factor = model.posterior, model.posterior.factor()
    features, basis = factor.mT @ rows.over_q, eye_like(factor)
    if features.shape[-1] < features.shape[-2]:
        basis, features = jnp.linalg.qr(features)
    there = Projection(features, rows.rest, marginals(q, rows)[0], None)
    unit = eye_like(features[..., : features.shape[-2]])
    start = Moments(jnp.zeros_like(unit[..., 0]), Sqrt(unit))
    loss = lambda w: -projected_elbo(with_posterior(model, w), there, batch)
    found = minimize_distributions(loss, start, 0.0, STEPS)
    precise = -2 * q.natural().second @ (factor @ basis)  # F⁻ᵀ of the basis
    linear, precision = project(precise, sites_of(found.params))
    linear += matvec(precision, q.location())
    return Sites(jnp.where(jnp.isfinite(found.value), linear, jnp.nan), precision)
