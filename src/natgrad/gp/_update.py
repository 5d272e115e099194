"""What a model learns from more rows, once it has seen others that are gone."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from natgrad._guarded import guarded_ngd
from natgrad._runtime.programs import filter_jit
from natgrad._warnings import warn
from natgrad.data._batches import Arrays, as_batch, padded, some_rows
from natgrad.errors import InputWarning
from natgrad.families.gaussian import AbstractGaussian
from natgrad.gp._fit import check
from natgrad.gp._profile import total_weight
from natgrad.gp._sparse import SparseGP, marginals
from natgrad.gp.likelihoods._rows import expected_log_probs
from natgrad.train._constants import NONE, Constants
from natgrad.train._loop import run
from natgrad.train._rules import Rule, all_finite, kept_unless


__all__ = ["update"]

STEPS = 20
"""Natural steps on each piece; where the likelihood is Gaussian, one would do."""

PIECE = 2048
"""How many rows are looked at together."""

UNSEEN = 0.5
"""The part of the prior variance that inducing inputs may leave without a warning."""


class Streamed(NamedTuple):
    """A model, and its q before these rows, which is what it takes for the prior."""

    model: SparseGP
    before: AbstractGaussian


def update(model: SparseGP, data: Any) -> SparseGP:
    """The model after more rows; hyperparameters and inducing inputs stay.

    q becomes the best Gaussian for p(y | f) q(u), so you can pass rows in pieces and
    discard them. With a Gaussian likelihood the result is that of all rows at once, for
    the same hyperparameters and inducing inputs. natgrad warns if the rows are far from
    the inducing inputs.

    Raises:
        InputError: If the rows do not fit the model.

    >>> first = gp.update(model, (x[:25], y[:25]))
    >>> both = gp.update(first, (x[25:], y[25:]))
    >>> whole = gp.update(model, (x, y))
    >>> bool(abs(both.posterior.mean - whole.posterior.mean).max() < 1e-6)
    True
    """
    batch = as_batch(data)
    check(model, batch, "data")
    left = 0.0
    for begin in range(0, len(batch.x), PIECE):
        piece = padded(some_rows(batch, slice(begin, begin + PIECE)))
        left += float(_unseen(model, piece) * total_weight(piece))
        params = Streamed(model, model.posterior)
        batches = Arrays(piece, len(piece.x))
        model = run(_rule(), params, batches, steps=STEPS, progress=False).params.model
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
def _unseen(model: Any, batch: Any) -> Array:
    """The part of the prior variance at some rows that the inducing inputs leave."""
    x = jnp.asarray(batch.x)
    rest, prior = jnp.maximum(model.project(x).rest, 0), model.kernel.diag(x)
    weight = jnp.broadcast_to(jnp.asarray(batch.weight, rest.dtype), rest.shape)
    return (weight * rest).sum() / (weight * prior).sum()


@functools.cache
def _rule() -> Rule:
    """Guarded natural steps on q alone, against what it was."""
    natural = optax.with_extra_args_support(guarded_ngd(1.0))

    def step(
        params: Streamed,
        state: Any,
        batch: Any,
        complete: Constants = NONE,
        **extra: Any,
    ) -> Any:
        model, before = params
        whole = complete(params).model
        rows = whole.project(batch.x)

        def loss(q: Any) -> Array:
            fit = expected_log_probs(whole.likelihood, *marginals(q, rows), batch.y)
            return q.kl(before).sum() - batch.weight.astype(fit.dtype) @ fit

        q: Any = model.posterior
        value, grad = jax.value_and_grad(loss)(q)
        seen = {"value": value, "grad": grad, "value_fn": loss}
        updates, moved_state = natural.update(grad, state, q, **{**extra, **seen})
        moved = eqx.tree_at(
            lambda model: model.posterior, model, optax.apply_updates(q, updates)
        )
        is_good = all_finite((value, moved))
        there = (Streamed(moved, before), moved_state)
        params, state = kept_unless(is_good, there, (params, state))
        return params, state, value

    return Rule(lambda params: natural.init(params.model.posterior), step)
