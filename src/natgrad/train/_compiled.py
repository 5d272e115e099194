"""The state of a run, and the compiled steps that move it on."""

import dataclasses
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from natgrad._padding import fill_up
from natgrad._runtime.programs import LONG_RUN, SHORT_RUN, jit
from natgrad.data._batches import Batches
from natgrad.train._constants import Constants
from natgrad.train._devices import Across, Devices
from natgrad.train._rules import Rule
from natgrad.train._schedule import Plan, first_plan, planned, progress_of


CALL_SECONDS = 0.2
"""How long a call of the compiled steps may take: the loop acts only in between."""

CALL_STEPS = 100
"""The most steps in a call."""

CALL_BYTES = 2**24
"""The most memory for the batches of one call."""

REFUSALS = 10
"""How many steps in a row may be refused before the run ends."""


class Tally(NamedTuple):
    """The sum and the number of the losses since the last record, and refused steps."""

    loss: Any
    steps: Any
    refused: Any
    in_a_row: Any


class Best(NamedTuple):
    """The best record, how many came since, and its parameters if they are kept."""

    value: Any
    age: Any
    params: Any


class State(NamedTuple):
    """All that a run needs to continue."""

    step: Any
    params: Any
    optimizer: Any
    tally: Tally
    best: Best
    plan: Plan | None


@partial(jit, static_argnums=(0, 1), compiler_options=SHORT_RUN)
def first_state(rule: Rule, has_score: bool, params: PyTree) -> State:
    """The state of a run before its first step."""
    zero = number(0)
    tally = Tally(number(0.0), zero, zero, zero)
    best = Best(number(-np.inf), zero, params if has_score else None)
    plan = first_plan() if rule.is_annealed else None
    return State(zero, params, rule.init(params), tally, best, plan)


def _on_all_devices(
    rule: Rule, devices: Devices, complete: Constants, state: State, *rest: object
) -> State:
    """Takes some steps on all devices."""
    steps = partial(_take_steps, rule, devices.across, complete)
    return devices.sharded(steps)(state, *rest)


# The state is not donated: a call that Ctrl-C breaks leaves the one before it.
_compiled = partial(jit, _on_all_devices, static_argnums=(0, 1, 2))
_advance = _compiled(compiler_options=LONG_RUN)
_advance_briefly = _compiled(compiler_options=SHORT_RUN)


def _take_steps(
    rule: Rule,
    across: Across,
    complete: Constants,
    state: State,
    batches: PyTree,
    number: Array,
    steps: Array,
    part: Array,
    rows: Array,
    seed: Array,
) -> State:
    """Takes `number` steps, whose count may change without a new compilation.

    `steps` is how many there are in all, `part` the part of the time that is over, and
    `rows` how many the data has.
    """
    key = jax.random.key(seed)

    def going(carry: tuple[Array, State]) -> Array:
        place, state = carry
        is_going = (place < number) & (state.tally.in_a_row < REFUSALS)
        return is_going & ~is_over(rule, state)

    def body(carry: tuple[Array, State]) -> tuple[Array, State]:
        place, state = carry
        at_place = lambda leaf: lax.dynamic_index_in_dim(leaf, place, keepdims=False)
        batch, shared = across.part(jax.tree.map(at_place, batches))
        params, optimizer, loss = rule.step(
            state.params,
            state.optimizer,
            batch,
            progress=progress_of(state.plan, state.step, steps, part),
            key=across.key(jax.random.fold_in(key, state.step)),
            across=shared,
            complete=complete,
        )
        tally = _tallied(state.tally, loss)
        plan = state.plan
        plan = None if plan is None else planned(plan, state.step, loss, rows)
        after = State(state.step + 1, params, optimizer, tally, state.best, plan)
        return place + 1, after

    return lax.while_loop(going, body, (jnp.zeros((), int), state))[1]


def is_over(rule: Rule, state: State) -> Any:
    """Whether a run has converged."""
    if rule.is_over is not None:
        return rule.is_over(state.optimizer)
    if state.plan is None:
        return jnp.zeros((), bool)
    return state.step.astype(float) >= state.plan.end


def _tallied(tally: Tally, loss: Array) -> Tally:
    is_taken = jnp.isfinite(loss)
    one = is_taken.astype(int)
    return Tally(
        tally.loss + jnp.where(is_taken, loss, 0).astype(float),
        tally.steps + one,
        tally.refused + 1 - one,
        (tally.in_a_row + 1) * (1 - one),
    )


@dataclasses.dataclass
class Caller:
    """Calls the compiled steps, as many at once as the loop can do without control.

    A call ends at the latest where a record is due, every `every` steps. While its
    steps are computed, the batches of the next call are fetched.
    """

    rule: Rule
    batches: Batches
    seed: int
    every: int
    steps: int | None
    limit: float | None
    devices: Devices
    complete: Constants
    room: int = 1
    # Unknown: the first call compiles. What was measured is to be agreed on.
    seconds_per_step: float = np.inf
    measured: float = np.inf
    ready: Any = None

    def call(self, state: State, seconds: float) -> State:
        """The state after some steps; the same if there is no more data."""
        step, best = int(state.step), state.best
        part = 0.0 if self.limit is None else min(1.0, seconds / self.limit)
        fetched = self._fetch(step) if self.ready is None else self.ready
        if fetched is None:
            return state
        stacked, number = fetched
        is_compiled = self.ready is not None
        started = time.monotonic()
        advance = _advance_briefly if self.rule.is_brief else _advance
        state = advance(
            self.rule,
            self.devices,
            self.complete,
            self.devices.spread(state._replace(best=None)),
            self.devices.place(stacked),
            number,
            float(self.steps or np.inf),
            part,
            float(self.batches.num_data or 1),
            self.seed,
        )
        self.ready = self._fetch(step + number)
        jax.block_until_ready(state.step)
        if is_compiled:
            self.measured = (time.monotonic() - started) / number
        return state._replace(best=best)

    def _fetch(self, step: int) -> tuple[Any, int] | None:
        """The batches of the next call, in arrays that always have the same shape."""
        if self.steps is not None and step >= self.steps:
            return None
        number = self.every - step % self.every
        if self.steps is not None:
            number = min(number, self.steps - step)
        affordable = int(CALL_SECONDS / self.seconds_per_step)
        number = max(1, min(number, affordable, self.room))
        stacked = self.batches.take(step, number)
        if stacked is None:
            return None
        leaves = jax.tree.leaves(stacked)
        if self.ready is None:
            size = sum(leaf.nbytes for leaf in leaves) // number
            room = min(CALL_STEPS, self.every, CALL_BYTES // max(size, 1))
            self.room = max(1, room)

        known = lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype)
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf, known(leaf)), stacked)
        return fill_up(stacked, self.room), len(leaves[0])


def number(value: int | float) -> np.ndarray:
    """A number as JAX would hold it; made on the host, where it costs nothing."""
    return np.asarray(value, jax.dtypes.canonicalize_dtype(type(value)))
