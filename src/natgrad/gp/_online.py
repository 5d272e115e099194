"""What a model learns from more rows, once it has seen others that are gone.

`update` keeps the hyperparameters, and q is all that it needs. If they follow, a model
keeps the sites of rows that are gone, at the inducing inputs, and a uniform sample of
the rows themselves, from which the noise is learned.
"""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from natgrad._runtime.threads import few_threads, largest
from natgrad.data._batches import Batch, as_batch, pad_rows, padded, pieces, some_rows
from natgrad.errors import FitError, InputError, InputWarning, warn
from natgrad.gp._fit import check
from natgrad.gp._following import learned, remembered, transferred, updated, worth_of
from natgrad.gp._profile import total_weight
from natgrad.gp._sites import Sites, to_sites
from natgrad.gp._sizes import ENOUGH
from natgrad.gp._sparse import SparseGP
from natgrad.gp.inducing import MOST, pivoted
from natgrad.train._constants import divided


PIECE = 2048
"""How many rows are looked at together."""

UNSEEN = 0.5
"""The part of the prior variance that inducing inputs may leave without a warning."""

KEPT = 1000
"""How many rows are kept as they are, unless you ask for another number."""

FEW_STEPS, STEPS = 20, 60
"""Evaluations of the profile by which the hyperparameters follow, at most; the second
as long as all rows so far are kept."""

GROWN = 0.05
"""The hyperparameters follow whenever the rows have grown by this part."""

MOST_HALVES = 500
"""After so many half-lives nothing is left of what was learned."""

DOUBTFUL = 0.05
"""Nats per row that inducing inputs may lose without a warning."""


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
        return updated(model, Batch(*data))[0]
    batch = as_batch(data)
    check(model, batch, "data")
    left = 0.0
    for piece in map(padded, pieces(batch, PIECE)):
        with few_threads(largest(model)):
            model, share, is_finite = updated(model, piece)
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


class Online(eqx.Module):
    """A model, and what it needs to keep learning; `gp.online` makes one.

    `num_data` is the total weight of the rows so far, and `lost` about how many nats
    per row the ELBO is below that of inducing inputs at every row.

    >>> online = gp.online(model).update((x, y))
    >>> online.num_data, online.lost < 0.05
    (50.0, True)
    """

    model: SparseGP
    num_data: float
    lost: float
    count: int
    learned_at: float
    unsampled: float  # the weight of rows before sampling began
    sites: Sites
    shift: float  # what was added to all targets since
    rows: Batch | None
    keys: Float[np.ndarray, " R"]
    num_inducing: int = eqx.field(static=True)
    memory: int = eqx.field(static=True)
    half_life: float | None = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def update(self, data: object) -> "Online":
        """The model after more rows, which need not be seen again.

        The posterior, the inducing inputs and the hyperparameters follow the rows.
        natgrad warns if the inducing inputs cannot represent all of them.

        Raises:
            InputError: If the rows do not fit the model.
            FitError: If the ELBO of the rows is not finite.

        >>> online = gp.online(model).update((x[:25], y[:25]))
        >>> online = online.update((x[25:], y[25:]))
        >>> online.num_data
        50.0
        """
        batch, online = _checked(self.model, data), self
        with few_threads(max(self.num_inducing, largest(self.model))):
            for piece in pieces(batch, PIECE):
                online = _after(online, piece)
        if online.lost > DOUBTFUL >= self.lost:
            warn(
                f"{len(online.model.inducing)} inducing inputs cannot represent all "
                f"{online.num_data:.0f} rows so far; predictions lose about "
                f"{online.lost:.2f} nats per row. Allow more inducing inputs",
                InputWarning,
            )
        return online


def online(
    model: SparseGP,
    data: object = None,
    *,
    num_inducing: int | None = None,
    memory: int = KEPT,
    half_life: float | None = None,
    seed: int = 0,
) -> Online:
    """A model that keeps learning, from rows that come in pieces.

    Its posterior is what it has learned so far, so it may be trained or not. `data` are
    the rows that it was trained on, if you still have them. The number of inducing
    inputs grows as far as it helps, to `num_inducing` at most, by default 200 or as
    many as the model has. A random sample of `memory` rows is kept. If the function
    itself changes with time, `half_life` is the number of rows after which what was
    learned counts half.

    Raises:
        InputError: If the rows do not fit the model, or a number is out of range.

    >>> trained = gp.fit(model, (x[:35], y[:35]), progress=False).params
    >>> online = gp.online(trained, (x[:35], y[:35])).update((x[35:], y[35:]))
    >>> gp.predictor(online.model).predict(x[:2])[0].shape
    (2,)
    """
    limit = max(MOST, len(model.inducing)) if num_inducing is None else num_inducing
    if limit < 1:
        raise InputError(f"num_inducing is {limit}; it should be 1 or more")
    if memory < 0:
        raise InputError(f"memory is {memory}; it should be 0 rows or more")
    if half_life is not None and not half_life > 0:
        raise InputError(f"half_life is {half_life}; it should be above 0 rows")
    kept = (None, np.zeros(0), limit, memory, half_life, seed)
    sites = to_sites(model)
    if data is None:
        return Online(model, 0.0, 0.0, 0, 0.0, 0.0, sites, 0.0, *kept)
    nothing = jax.tree.map(jnp.zeros_like, sites)
    begun = Online(model, 0.0, 0.0, 0, 0.0, 0.0, nothing, 0.0, *kept)
    for piece in pieces(_checked(model, data), PIECE):
        begun = _after(begun, piece, is_known=True)
    return begun


def _checked(model: SparseGP, data: object) -> Any:
    """Rows of weight above 0, in arrays of the model's precision."""
    batch = as_batch(data)
    check(model, batch, "data")
    if batch.weight is None:
        batch = batch._replace(weight=np.ones(len(batch.x)))
    dtype = model.inducing.dtype
    batch = jax.tree.map(lambda column: np.asarray(column).astype(dtype), batch)
    return some_rows(batch, np.flatnonzero(batch.weight > 0))


def _after(online: Online, piece: Any, is_known: bool = False) -> Online:
    """The model after one piece, or with a piece that it knows already."""
    if online.half_life is not None:
        halves = float(piece.weight.sum() / online.half_life)
        online = _faded(online, 0.5 ** min(halves, MOST_HALVES))
    # The rows with the smallest keys are kept: a uniform sample of all so far.
    fresh = np.random.default_rng([online.seed, online.count])
    keys = np.append(online.keys, fresh.uniform(size=len(piece.x)))
    rows, known = piece, 0
    if online.rows is not None:
        known = len(online.rows.x)
        rows = jax.tree.map(lambda a, b: np.concatenate([a, b]), online.rows, piece)
    stays = np.sort(np.argsort(keys, kind="stable")[: online.memory])
    capacity = online.memory + len(padded(piece).x)
    filled = pad_rows(rows, capacity)
    is_new, leaves = np.zeros((2, capacity))
    is_new[known : len(rows.x)], leaves[: len(rows.x)] = 1, 1
    leaves[stays] = 0
    weight = online.num_data + float(piece.weight.sum())
    learned_at = online.learned_at
    model, sites, lost = online.model, online.sites, 0.0
    shift = np.asarray(online.shift, model.inducing.dtype)
    before = model
    if is_known:
        learned_at = weight
    else:
        worth, at_present = worth_of(model, sites, filled)
        before = _placed(online, filled, len(rows.x), worth, float(at_present))
        if before is not model:
            sites, lost = transferred(before, model, sites, shift)
            shift = np.zeros_like(shift)
        is_due = weight >= (1 + GROWN) * learned_at
        steps = STEPS if known == online.count else FEW_STEPS
        steps, learned_at = (steps, weight) if is_due else (1, learned_at)
        trained, complete = divided(before)
        gone = _gone(online, worth)
        trained, value = learned(complete, trained, sites, shift, filled, gone, steps)
        if not np.isfinite(value):
            raise FitError("the ELBO of these rows is not finite; nothing was learned")
        model = complete(trained)
    sites, more = remembered(model, before, sites, shift, filled, leaves, is_new)
    lost = online.lost * online.num_data + max(float(lost + more), 0.0)
    return dataclasses.replace(
        online,
        model=model,
        num_data=weight,
        lost=lost / weight,
        count=online.count + len(piece.x),
        learned_at=learned_at,
        sites=sites,
        shift=0.0,
        rows=some_rows(rows, stays) if online.memory else None,
        keys=keys[stays],
    )


def _gone(online: Online, worth: Array) -> np.ndarray:
    """How precisely rows that are gone know f, shared out among those that were kept.

    These are a uniform sample since sampling began, and so what the former know is
    estimated by them.
    """
    gone, sample = np.zeros(online.memory), cast(Any, online.rows)
    if sample is None or not len(sample.x):
        return gone
    known, kept = len(sample.x), float(sample.weight.sum())
    begin = len(online.model.inducing)
    each = max(online.num_data - online.unsampled - kept, 0.0) / kept
    gone[:known] = each * np.asarray(worth)[begin : begin + known]
    return gone


def _faded(online: Online, factor: float) -> Online:
    """What was learned, when it counts for less."""
    rows: Any = online.rows
    if rows is not None:
        rows = rows._replace(weight=factor * rows.weight)
    return dataclasses.replace(
        online,
        num_data=factor * online.num_data,
        learned_at=factor * online.learned_at,
        unsampled=factor * online.unsampled,
        sites=jax.tree.map(lambda each: factor * each, online.sites),
        rows=rows,
        keys=online.keys / factor,  # rows that count less leave sooner
    )


# Where the inducing inputs go


def _placed(
    online: Online, rows: Batch, number: int, worth: Array, at_present: float
) -> SparseGP:
    """The model with inducing inputs that see all rows, and q at the prior.

    They are chosen among the old ones and the rows, those that were kept and new ones,
    in number as many as help.
    """
    model, limit = online.model, online.num_inducing
    before = len(model.inducing)
    is_within = before <= limit
    if is_within and at_present <= ENOUGH * number:
        return model
    candidates = jnp.concatenate([model.inducing, jnp.asarray(rows.x)])
    size = min(before, limit)
    while True:
        found = pivoted(model.kernel, candidates, worth, size)
        losses = np.asarray(worth * jnp.maximum(found.left, 0)) / 2
        if losses[before:].sum() <= ENOUGH * number or size >= limit:
            break
        size = min(2 * size, limit)
    # Moving costs what was known at the old inputs, and may not pay.
    if is_within and losses.sum() >= at_present:
        return model
    chosen = np.asarray(found.chosen)
    chosen = chosen[chosen >= 0]
    if len(chosen) < min(before, size):  # so few explain all: others stay
        others = np.setdiff1d(np.arange(before), chosen)
        chosen = np.append(chosen, others[: min(before, size) - len(chosen)])
    return dataclasses.replace(model, inducing=candidates[chosen], posterior=None)
