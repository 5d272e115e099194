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
from natgrad.families.gaussian import AbstractGaussian
from natgrad.gp._fit import check
from natgrad.gp._profile import total_weight
from natgrad.gp._sites import condition, project, sites_at, to_sites, together
from natgrad.gp._sparse import SparseGP, marginals, with_posterior
from natgrad.gp.likelihoods import Gaussian
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.train._profile import minimize_distributions


__all__ = ["update"]

STEPS = 20
"""Natural steps on each piece; where the likelihood is Gaussian, one would do."""

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
        left += float(_unseen(model, piece) * total_weight(piece))
        with few_threads(largest(model)):
            model, is_finite = _updated(model, piece)
        if not is_finite:
            raise FitError("the ELBO of these rows is not finite; nothing was learned")
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
def _unseen(model: SparseGP, batch: Batch) -> Array:
    """The part of the prior variance at some rows that the inducing inputs leave."""
    x = jnp.asarray(batch.x)
    rest, prior = jnp.maximum(model.project(x).rest, 0), model.kernel.diag(x)
    weight = jnp.broadcast_to(jnp.asarray(batch.weight, rest.dtype), rest.shape)
    return (weight * rest).sum() / (weight * prior).sum()


@filter_jit
def _updated(model: SparseGP, batch: Batch) -> tuple[SparseGP, Array]:
    """The model whose q has the sites of more rows, and whether they are finite."""
    rows = model.project(jnp.asarray(batch.x))
    if isinstance(model.likelihood, Gaussian):  # sites do not depend on q
        sites = project(rows.over_q, sites_at(model, rows, batch))
        sites = together(to_sites(model), sites)
        q = condition(model.posterior, sites, rows.inverse)
        return with_posterior(model, q), q.is_inside().all()

    def loss(q: AbstractGaussian) -> Array:
        fit = expected_log_probs(model.likelihood, *marginals(q, rows), batch)
        weight = 1.0 if batch.weight is None else batch.weight.astype(fit.dtype)
        return q.kl(model.posterior).sum() - (weight * fit).sum()

    found = minimize_distributions(loss, model.posterior, 0.0, STEPS)
    return with_posterior(model, found.params), jnp.isfinite(found.value)
