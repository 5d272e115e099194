"""A natural step on q and an ordinary step on the hyperparameters."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from natgrad._optim import split
from natgrad.data._batches import Batch
from natgrad.families.gaussian import Moments
from natgrad.gp._sparse import Projection, SparseGP, projected_elbo, with_posterior
from natgrad.linalg import Full
from natgrad.train._constants import NONE, Constants
from natgrad.train._devices import ALONE, Across
from natgrad.train._rules import Rule, accept_if, all_finite


class AlternatingState(NamedTuple):
    """The states of the two optimizers."""

    natural: optax.OptState
    ordinary: optax.OptState


def alternating(
    natural: optax.GradientTransformation,
    ordinary: optax.GradientTransformation,
    num_data: int | float | None = None,
) -> Rule:
    """A rule for `fit`: `natural` moves q, then `ordinary` the rest, on one batch.

    With `optax.set_to_zero()` for `ordinary`, the hyperparameters stay as they are.
    The paper alternates too, but starts with `ordinary`. The loss is the negative ELBO
    of `num_data` rows: `fit` sets it; in your own loop, pass it. natgrad projects the
    batch once for both halves and for all trials of a guarded step. In the second half
    it differentiates only the hyperparameters.

    >>> rule = gp.alternating(natgrad.ngd(0.1), optax.adam(0.01))
    >>> options = {"rule": rule, "steps": 10, "progress": False}
    >>> gp.fit(model, (x, y), **options).history[-1].step
    10
    """
    sized = None
    if num_data is None:
        made = functools.cache(functools.partial(alternating, natural, ordinary))
        sized = lambda num_data, _: made(num_data)
    natural = optax.with_extra_args_support(natural)
    ordinary = split(None, ordinary)

    # Optax's own types know of arrays only, hence the Any.

    def init(model: Any) -> AlternatingState:
        return AlternatingState(natural.init(model.posterior), ordinary.init(model))

    def step(
        model: Any,
        state: AlternatingState,
        batch: Batch,
        across: Across = ALONE,
        complete: Constants = NONE,
        **extra: object,
    ) -> tuple[SparseGP, AlternatingState, Float[Array, ""]]:
        q, total = model.posterior, num_data
        rows, pull_back = jax.vjp(lambda model: complete(model).project(batch.x), model)
        if num_data is not None and batch.weight is not None and across.is_uneven:
            # A share of the weight of the whole batch, and not of this part's own.
            share = num_data / across.mean(jnp.asarray(batch.weight).sum())
            batch, total = batch._replace(weight=share * batch.weight), None

        def loss(model: SparseGP, rows: Projection) -> Array:
            return -projected_elbo(complete(model), rows, batch, total)

        of_part = lambda q: loss(with_posterior(model, q), rows)
        loss_of_q = lambda q: across.mean(of_part(q))
        value, grad = across.mean(jax.value_and_grad(of_part)(q))
        seen = {"value": value, "grad": grad, "value_fn": loss_of_q}
        rest = with_posterior(model, None)
        updates, natural_state = natural.update(
            grad, state.natural, q, **{**extra, **seen, "rest": rest}
        )
        moved = with_posterior(model, optax.apply_updates(q, updates))
        grads = hyperparameter_gradient(loss, moved, rows, pull_back)
        # What q has there is zero, and need not be sent.
        still, grads = grads.posterior, across.mean(with_posterior(grads, None))
        grads = with_posterior(grads, still)
        updates, ordinary_state = ordinary.update(grads, state.ordinary, moved, **extra)
        moved = optax.apply_updates(moved, updates)
        there = (moved, AlternatingState(natural_state, ordinary_state))
        # One bad row must not spoil what was learned. What is not finite in a gradient
        # of the hyperparameters is so in where they move, if they move at all.
        is_good = all_finite((value, grad, moved))
        model, state = accept_if(is_good, there, (model, state))
        return model, state, jnp.where(is_good, value, jnp.nan)

    return Rule(init, step, is_shareable=True, sized=sized)


def hyperparameter_gradient(
    loss: Callable[[SparseGP, Any], Array],
    model: SparseGP,
    rows: Any,
    pull_back: Callable[[Any], tuple[SparseGP]],
) -> Any:
    """The gradient of all but q, which is zero there.

    `rows` are a projection, or a tree that begins with one.
    """
    q, (size, batch) = model.posterior, jax.tree.leaves(rows)[0].shape[-2:]
    if batch > size:
        # With S at hand, S a serves the variance and its derivative both.
        q = Moments(q.location(), Full(q.covariance()))
    of_rest = lambda model, rows: loss(with_posterior(model, q), rows)
    direct, slopes = jax.grad(of_rest, argnums=(0, 1))(model, rows)
    return jax.tree.map(jnp.add, direct, pull_back(slopes)[0])
