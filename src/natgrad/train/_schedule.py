"""When a run on batches slows down, and when it ends: no horizon is given in advance.

The rate stays constant until the last quarter of the steps gains less than `RISE` on
the quarter before, with noise in favour of continuing. Then the rate falls to zero over
twice the steps taken so far, and the run is over. `steps` and `minutes` are limits: the
rate begins to fall early enough to reach zero by then. All of this is part of the
compiled steps, so a run is the same however it is cut into calls.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


COOLING = 2.0
"""How many steps the rate falls for, for each one before."""

SPAN, SLOTS = 20, 64
"""Steps in each average of the loss at first, and the most averages kept."""

FEWEST, EVERY = 32, 8
"""Averages needed for the first test, and between one test and the next."""

RISE = 0.003
"""Nats per row that a quarter must gain on the one before, or the rate falls."""


class Plan(NamedTuple):
    """Averages of the loss, `number` of them over `span` steps; when the rate falls."""

    total: Float[Array, ""]
    averages: Float[Array, " K"]
    number: Float[Array, ""]
    span: Float[Array, ""]
    begin: Float[Array, ""]
    end: Float[Array, ""]


def first_plan() -> Plan:
    """The plan of a run before its first step."""
    never, zero = jnp.full((), jnp.inf, float), jnp.zeros((), float)
    span = jnp.full((), SPAN, float)
    return Plan(zero, jnp.zeros(SLOTS, float), zero, span, never, never)


def planned(plan: Plan, step: Array, loss: Array, rows: Any) -> Plan:
    """The plan after the loss of one more step; the data has as many `rows`."""
    step = (step + 1).astype(float)
    is_whole = step % plan.span == 0
    total = plan.total + jnp.where(jnp.isfinite(loss), loss, 0).astype(float)
    added = plan.averages.at[plan.number.astype(int)].set(total / plan.span)
    averages = jnp.where(is_whole, added, plan.averages)
    count = plan.number + is_whole.astype(float)
    is_now = is_whole & is_level(averages / rows, count) & jnp.isinf(plan.begin)
    # When there are too many, each becomes the average of two.
    is_full = count == SLOTS
    pairs = averages.reshape(-1, 2).mean(1)
    halved = jnp.concatenate([pairs, jnp.zeros_like(pairs)])
    return Plan(
        jnp.where(is_whole, 0, total),
        jnp.where(is_full, halved, averages),
        jnp.where(is_full, SLOTS / 2, count),
        jnp.where(is_full, 2 * plan.span, plan.span),
        jnp.where(is_now, step, plan.begin),
        jnp.where(is_now, jnp.ceil(step * (1 + COOLING)), plan.end),
    )


def is_level(losses: Float[Array, " K"], count: Array) -> Bool[Array, ""]:
    """Whether the last quarter of the first `count` gains too little on the third.

    Two standard errors are added to the gain, so noise makes a run continue. The test
    runs only every few averages, because repeated tests would stop a run by chance.
    """
    size = jnp.floor(count / 4)
    place = jnp.arange(len(losses), dtype=float)

    def moments(end: Array) -> tuple[Array, Array]:
        weight = ((place >= end - size) & (place < end)).astype(float) / size
        mean = weight @ losses
        return mean, weight @ (losses - mean) ** 2

    (before, var_before), (after, var_after) = moments(count - size), moments(count)
    error = jnp.sqrt((var_before + var_after) / size)
    is_tested = (count >= FEWEST) & (count % EVERY == 0)
    return is_tested & (before - after + 2 * error <= RISE)


def progress_of(plan: Plan | None, step: Array, steps: Any, part: Any) -> Array:
    """How far the rate has fallen, from 0 to 1, at a step of at most `steps`.

    `part` is the part of the time that is over. Without a plan the rate falls from the
    beginning.
    """
    step = step.astype(float)
    if plan is None:
        return jnp.maximum(step / steps, part)
    latest = 1 / (1 + COOLING)
    is_planned = plan.end < steps
    begin = jnp.where(is_planned, plan.begin, latest * steps)
    end = jnp.where(is_planned, plan.end, steps)
    by_steps = jnp.where(step < begin, 0, (step - begin) / (end - begin))
    by_time = (part - latest) / (1 - latest)
    return jnp.clip(jnp.maximum(by_steps, by_time), 0, 1)
