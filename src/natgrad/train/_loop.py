"""Training: a fold of a step over batches, many steps to a call."""

import contextlib
import inspect
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import optax

from natgrad import distributed
from natgrad._guarded import GuardedState
from natgrad._runtime.programs import limit_programs
from natgrad._runtime.threads import few_threads, largest
from natgrad.data._batches import Arrays, Batches, IterableBatches, as_batches
from natgrad.errors import FitError, InputError, InputWarning
from natgrad.train._checkpoint import Checkpoints
from natgrad.train._compiled import (
    REFUSALS,
    Best,
    Caller,
    State,
    copied,
    first_state,
    is_over,
    number,
)
from natgrad.train._constants import NONE, Constants, divided
from natgrad.train._diagnosis import likely_cause
from natgrad.train._history import History, Record
from natgrad.train._keeper import Keeper
from natgrad.train._mesh import Devices, devices_for, unlike_parts
from natgrad.train._profile import profile_rule
from natgrad.train._progress import Progress, Silent
from natgrad.train._rules import Loss, Rule, default_rule, in_turn
from natgrad.train._watch import REASONS, TERMINATED, Clock, Signals, Watchdog


STEPS = 5000
"""How long a run is if nothing is said."""

RECORDS = 50
"""How many records a run of known length leaves."""

LONGEST = 50
"""How many steps a record stands for, at most."""

CONVERGED = "converged"
"""Why a run ends that has found its optimum."""


class Fitted(NamedTuple):
    """What a run leaves: the parameters, and what it said on the way."""

    params: Any
    history: History


def fit(
    loss: Loss,
    params: Any,
    data: Any,
    *,
    optimizer: optax.GradientTransformation | Sequence[Any] | str | None = None,
    batch_size: int = 256,
    seed: int = 0,
    **options: Any,
) -> Fitted:
    """Trains any tree of parameters, with natural gradients for its distributions.

    `loss(params, batch)` is in nats, of all the data: minus the evidence bound,
    estimated from a batch; it may take a `key` too, which is new at each step. `data`
    is a tree of columns, such as (x, y), of which batches have `batch_size` rows, or an
    iterable of batches. On several devices each has a part of a batch, and the loss of
    a batch should be the mean of those of its parts. Left out, `optimizer` is a guarded
    natural step on the distributions and annealed Adam on the rest; several are taken
    in turn.

    `optimizer="profile"` sees all rows at every step and has no learning rate: L-BFGS
    moves the rest while natural steps keep the distributions at their best. The loss
    then never rises, and the run stops when nothing is left to gain.

    `options` are those of `run`.
    """
    batches = as_batches(data, batch_size, seed)
    if isinstance(optimizer, str):
        batches, rule = _profiled(loss, batches, optimizer)
    elif optimizer is None:
        rule = default_rule(loss, params, batches.fraction)
    elif isinstance(optimizer, optax.GradientTransformation):
        rule = in_turn(loss, optimizer)
    else:
        rule = in_turn(loss, *optimizer)
    return run(rule, params, batches, seed=seed, loss=loss, **options)


def _profiled(loss: Loss, batches: Batches, name: str) -> tuple[Arrays, Rule]:
    """All rows as one batch, and the rule that climbs the profile of a loss."""
    if name != "profile":
        raise InputError(f"optimizer is {name!r}; the only name is 'profile'")
    if not isinstance(batches, Arrays):
        raise InputError(
            "optimizer='profile' needs all rows at every step: give arrays, not batches"
        )
    if len(inspect.signature(loss).parameters) > 2:
        raise InputError(
            "optimizer='profile' needs a loss without noise: loss(params, batch), "
            "without a key"
        )
    rows = Arrays(batches.columns, batches.total, batches.seed)
    return rows, profile_rule(loss, rows.num_data)


def run(
    rule: Rule,
    params: Any,
    batches: Batches,
    *,
    steps: int | None = None,
    minutes: int | float | None = None,
    patience: int | None = None,
    score: Callable[[Any], Any] | None = None,
    seed: int = 0,
    progress: bool | str = True,
    log: str | Path | None = None,
    log_every: int | None = None,
    callbacks: Sequence[Callable[[Record, Any], None]] = (),
    checkpoint: str | Path | Checkpoints | None = None,
    save_seconds: int | float = 10.0,
    resume: bool = False,
    config: dict[str, Any] | None = None,
    loss: Loss | None = None,
    latent_parts: int = 1,
) -> Fitted:
    """Takes steps until the run is over, and shows what it does.

    It is over after `steps`, after `minutes`, or once `patience` records in a row have
    brought no new best: of `score`, a function of the parameters that should grow, or,
    if there is none, of the objective. With a score the best parameters are returned,
    else the last. Interrupted from the keyboard it ends as if it were over.

    A record is made every `log_every` steps, and is a line of the file `log`;
    `callbacks` get each, with the parameters. `progress` may be a title for the bar.
    The folder `checkpoint` gets the whole state every `save_seconds` and at the end;
    `resume` goes on from there, to the same result, bit for bit, as if nothing had
    happened.

    All devices share the rows of a batch, and all processes do that have called
    `natgrad.distributed.initialize`. If the distributions are a batch of many, as
    those of a classifier, `latent_parts` devices at a time share these out too.
    """
    _check_options(steps=steps, minutes=minutes, patience=patience, log_every=log_every)
    limit_programs()
    steps = STEPS if steps is None and minutes is None else steps and int(steps)
    every = log_every or max(1, min((steps or STEPS) // RECORDS, LONGEST))
    every = 1 if rule.is_over is not None else every
    limit = None if minutes is None else 60 * minutes
    described = _described(batches, seed, config)
    devices = _devices(rule, loss, params, batches, latent_parts)
    params, complete = divided(params)
    score = None if score is None else jax.jit(_completed(score, complete))
    state = first_state(rule, params, has_score=score is not None)
    batches, is_first = devices.shared(batches), devices.is_first
    _check_alike(described)
    keeper = Keeper(checkpoint if is_first else None, save_seconds, described)
    watchdog = Watchdog(
        distributed.limit("PATIENCE") if devices.processes > 1 else None
    )
    threads = few_threads(largest(params))
    with threads, contextlib.closing(keeper), Signals() as signals, watchdog:
        state, spent = keeper.restore(state, resume and is_first)
        state, spent = devices.broadcast((state, spent))
        state, spent = devices.spread(state), float(spent)
        if log is None and isinstance(checkpoint, str | Path):
            log = Path(checkpoint) / "history.jsonl"
        history = History(log, is_first)
        history.begin(int(state.step))
        callbacks = callbacks if is_first else ()
        caller = Caller(rule, batches, seed, every, steps, limit, devices, complete)
        clock = Clock(spent)
        left = None if limit is None else limit - spent
        title = progress if isinstance(progress, str) else ""
        is_shown = progress and is_first
        bar = Progress(steps, left, int(state.step), title) if is_shown else Silent()
        with bar as shown:
            while True:
                step = int(state.step)
                # What each process knows for itself: all act on the same.
                known = [float(signals.heard), clock.seconds(), caller.measured]
                known.append(float(keeper.is_due()))
                heard, seconds, caller.seconds_per_step, due = (
                    devices.max_over_processes(known)
                )
                if due:
                    keeper.keep(devices.gather(state), seconds, history)
                reason = REASONS.get(int(heard))
                if is_over(rule, state):
                    reason = CONVERGED
                elif steps is not None and step >= steps:
                    reason = "all steps taken"
                elif limit is not None and seconds >= limit:
                    reason = "the time is over"
                elif patience is not None and int(state.best.age) >= patience:
                    reason = f"no new best in {patience} records"
                if reason is None:
                    state = caller.call(state, seconds)
                    reason = "no more data" if int(state.step) == step else None
                    watchdog.seen_alive()
                if reason is not None:
                    break
                if clock.step is None:
                    clock.begin(int(state.step))
                step, record = int(state.step), None
                if int(state.tally.in_a_row) >= REFUSALS:
                    alone = state._replace(params=devices.local(state.params))
                    raise _failure(loss, alone, complete, batches, history)
                if step % every == 0 or step == steps or is_over(rule, state):
                    held_out = _scored(score, state, devices)
                    record, state = _record(state, batches.num_data, held_out, clock)
                    history.add(record)
                    params = devices.local(state.params)
                    for callback in callbacks:
                        # Their own: the next steps write where the state was.
                        callback(record, complete(copied(params)))
                shown.show(step, record)
            last = state
            is_unsaid = not len(history) or history[-1].step < int(state.step)
            if devices.max_over_processes([float(is_unsaid)])[0]:
                # The state that is saved stays: a resumed run has records of its own.
                held_out = _scored(score, state, devices)
                record, last = _record(state, batches.num_data, held_out, clock)
                history.records.append(record)
            history.reason = reason
            shown.end(reason)
        given = last.params if score is None else last.best.params
        given = complete(devices.local(given))
        keeper.end(devices.gather(state), clock.seconds(), history, given)
        devices.barrier()  # none leaves before the last checkpoint is there
    if reason == REASONS[TERMINATED]:
        raise SystemExit(143)
    return Fitted(given, history)


def _record(
    state: State, num_data: float | None, held_out: float | None, clock: Clock
) -> tuple[Record, State]:
    """A record of the steps since the last, and the state with a fresh tally."""
    tally, best = state.tally, state.best
    taken = int(tally.steps)
    objective = -float(tally.loss) / max(taken, 1) / (num_data or 1)
    objective = objective if taken else float("nan")
    guard = _guard(state.optimizer)
    refused = int(tally.refused) + (0 if guard is None else int(guard.refused))
    step = int(state.step)
    record = Record(
        step=step,
        seconds=round(clock.seconds(), 3),
        objective=objective,
        score=held_out,
        step_size=None if guard is None else float(guard.step_size),
        halvings=None if guard is None else int(guard.halvings),
        refused=refused,
        steps_per_second=clock.rate(step),
    )
    value = objective if held_out is None else held_out
    if value > float(best.value):
        params = None if best.params is None else copied(state.params)
        best = Best(number(value), number(0), params)
    else:
        best = best._replace(age=number(int(best.age) + 1))
    fresh = tally._replace(loss=number(0.0), steps=number(0))
    return record, state._replace(tally=fresh, best=best)


def _scored(score: Any, state: State, devices: Devices) -> float | None:
    """The score of held-out data, on which all processes agree."""
    if score is None:
        return None
    return devices.max_over_processes([float(score(devices.local(state.params)))])[0]


def _devices(
    rule: Rule, loss: Loss | None, params: Any, batches: Batches, latents: int
) -> Devices:
    """All devices, if the loss can be shared out to them."""
    if rule.is_over is not None:
        return Devices()
    devices = devices_for(getattr(batches, "batch_size", None), latents)
    if devices.across.number == 1 or rule.is_shareable or loss is None:
        return devices
    why = unlike_parts(loss, params, batches)
    if why is not None and devices.processes > 1:
        raise InputError(why)
    if why is not None:
        warnings.warn(f"{why}; one device is used", InputWarning, stacklevel=4)
    return devices if why is None else Devices()


def _check_alike(described: dict[str, Any]) -> None:
    """Raises if the processes are not of the same run."""
    told = distributed.exchange(json.dumps(described, sort_keys=True).encode())
    for process, other in enumerate(told):
        if other != told[0]:
            raise InputError(
                f"process {process} has another run than the first: "
                f"{other.decode():.300}, and not {told[0].decode():.300}"
            )


def _guard(optimizer: Any) -> GuardedState | None:
    """The state of a guarded step among those of all optimizers."""
    is_guard = lambda node: isinstance(node, GuardedState)
    nodes = filter(is_guard, jax.tree.leaves(optimizer, is_leaf=is_guard))
    return next(nodes, None)


def _completed(function: Any, complete: Constants) -> Any:
    """A function of the parameters and more, as one of those that are trained."""
    if complete == NONE:
        return function
    return lambda trained, *rest: function(complete(trained), *rest)


def _failure(
    loss: Loss | None,
    state: State,
    complete: Constants,
    batches: Batches,
    history: History,
) -> FitError:
    """An error that carries what the run had, and says why it may have ended."""
    step = int(state.step) - 1
    places = batches.places(step, 1)[0] if isinstance(batches, Arrays) else None
    is_gone = isinstance(batches, IterableBatches) and not batches.is_repeatable
    taken = None if is_gone else batches.take(step, 1)
    cause = "its batch cannot be had again"
    if taken is not None:
        batch = jax.tree.map(lambda leaf: leaf[0], taken)
        of_trained = None if loss is None else _completed(loss, complete)
        cause = likely_cause(of_trained, state.params, batch, places)
    history.reason = "refused"
    error = FitError(
        f"the loss or its gradient was not finite in {REFUSALS} steps in a row, the "
        f"last being step {step}; {cause}. The parameters before them are the `params` "
        "of this error, and the records its `history`"
    )
    error.params, error.history = complete(state.params), history
    return error


def _check_options(**options: int | float | None) -> None:
    for name, value in options.items():
        if value is not None and not value > 0:
            raise InputError(f"{name} is {value}; it should be above 0")
        if value is not None and name != "minutes" and value != int(value):
            raise InputError(f"{name} is {value}; it should be a whole number")


def _described(
    batches: Batches, seed: int, config: dict[str, Any] | None
) -> dict[str, Any]:
    """What must not change between two parts of a run."""
    ours: dict[str, Any] = {"seed": int(seed), "fraction": batches.fraction}
    ours["num_data"] = None if batches.num_data is None else float(batches.num_data)
    if hasattr(batches, "fingerprint"):
        source: Any = batches
        ours |= {"order": int(source.seed), "data": source.fingerprint()}
    theirs = config or {}
    if both := sorted(ours.keys() & theirs.keys()):
        raise InputError(f"config has {both}, which natgrad compares itself")
    return ours | theirs
