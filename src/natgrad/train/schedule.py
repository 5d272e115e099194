"""When a run on batches slows down, and when it ends: no horizon is given in advance.

The rate stays at its height until the loss no longer falls beyond its noise. Then it
falls to zero over twice the steps taken so far, and the run is over. `steps` and
`minutes` are limits: the rate begins to fall early enough to reach zero by then. All of
this is part of the compiled steps, so a run is the same however it is cut into calls.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


COOLING = 2.0
"""How many steps the rate falls for, for each one before."""

SPAN, WINDOW = 20, 10
"""Losses are averaged over so many steps, and so many averages make a window."""

RISE = 0.01
"""Nats per row that a window must gain on the one before, or the rate falls."""


class Plan(NamedTuple):
    """The sum of the losses so far, their last averages, and when the rate falls."""

    total: Float[Array, ""]
    averages: Float[Array, " K"]
    begin: Float[Array, ""]
    end: Float[Array, ""]


def first_plan() -> Plan:
    """Of a run of which nothing is known."""
    never = jnp.full((), jnp.inf, float)
    return Plan(
        jnp.zeros((), float), jnp.full(2 * WINDOW, jnp.nan, float), never, never
    )


def planned(plan: Plan, step: Any, loss: Any, rows: Any) -> Plan:
    """The plan after the loss of one more step; the data has as many `rows`."""
    step = (step + 1).astype(float)
    is_full = step % SPAN == 0
    total = plan.total + jnp.where(jnp.isfinite(loss), loss, 0).astype(float)
    shifted = jnp.append(plan.averages[1:], total / SPAN)
    averages = jnp.where(is_full, shifted, plan.averages)
    is_now = is_full & is_level(averages / rows) & jnp.isinf(plan.begin)
    return Plan(
        jnp.where(is_full, 0, total),
        averages,
        jnp.where(is_now, step, plan.begin),
        jnp.where(is_now, jnp.ceil(step * (1 + COOLING)), plan.end),
    )


def is_level(losses: Float[Array, " K"]) -> Bool[Array, ""]:
    """Whether the later half is below the earlier one by no more than noise."""
    before, after = losses[:WINDOW], losses[WINDOW:]
    noise = jnp.sqrt((before.var() + after.var()) / WINDOW)
    return before.mean() - after.mean() <= jnp.maximum(RISE, noise)


def progress_of(plan: Plan | None, step: Any, steps: Any, part: Any) -> Array:
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
