"""Training: a fold of a step over batches, many steps to a call."""

import contextlib
import inspect
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import optax

from natgrad import distributed
from natgrad._runtime.programs import limit_programs
from natgrad._runtime.threads import few_threads, largest
from natgrad._warnings import warn
from natgrad.data._batches import Arrays, Batches, IterableBatches, as_batches
from natgrad.errors import FitError, InputError, InputWarning, Terminated
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
from natgrad.train._mesh import Devices, devices_for, unlike_parts
from natgrad.train._options import Options
from natgrad.train._profile import profile_rule
from natgrad.train._progress import Progress, Silent
from natgrad.train._rules import (
    Loss,
    Rule,
    default_rule,
    for_rows,
    guard_of,
    in_turn,
    last_step,
)
from natgrad.train._saver import Saver
from natgrad.train._watch import REASONS, TERMINATED, Clock, Signals, Watchdog


STEPS = 2500
"""How many steps a run takes by default; benchmarks/decay.py compares it with more."""

RECORDS = 50
"""How many records a run of known length makes."""

LONGEST = 50
"""How many steps a record stands for, at most."""

CONVERGED = "converged"
"""The reason of a run that ends at its optimum."""


class Fitted(NamedTuple):
    """The result of a run: the trained parameters and the history.

    >>> gp.fit(model, (x, y), steps=5, progress=False).history[-1].step
    5
    """

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

    `loss(params, batch)` is the negative ELBO of all the data in nats, estimated from a
    batch; it may take a `key`, new at each step. `data` is a tree of columns, such as
    (x, y), or an iterable of batches. On several devices the loss of a batch should be
    the mean of those of its parts. By default `guarded_ngd` moves the distributions,
    Adam the rest, and the last steps are averaged. Several optimizers take turns.

    `optimizer="profile"` sees all rows at every step and has no learning rate: L-BFGS
    moves the rest while natural steps keep the distributions at their optimum. The loss
    never rises, and the run stops by itself. `options` are those of `train.Options`.

    Raises:
        InputError: If the data or `optimizer` cannot be used.
        FitError: If the loss or its gradient stays not finite for several steps.

    >>> fitted = natgrad.fit(lambda q, batch: loss(q), q, y, steps=20, progress=False)
    >>> print(fitted.params.linear.round(2), p.linear)
    [1.] [1.]
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
    """All rows as one batch, and the rule that minimises the profile of a loss."""
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
    loss: Loss | None = None,
    **options: Any,
) -> Fitted:
    """Runs the steps of a `rule` on batches until the run is over.

    `options` are those of `Options`. With `loss`, errors say where it is not finite.

    Raises:
        FitError: If the loss or its gradient stays not finite for several steps.
        Terminated: After SIGTERM; it has the parameters and the history.

    >>> rule = natgrad.train.in_turn(lambda q, batch: loss(q), natgrad.ngd(0.5))
    >>> batches = natgrad.data.Arrays(y, batch_size=25)
    >>> fitted = natgrad.train.run(rule, q, batches, steps=10, progress=False)
    >>> print(fitted.params.linear.round(2))
    [1.]
    """
    limit_programs()
    prepared = _Run(rule, params, batches, loss, Options.of(options))
    with prepared.open() as state:
        fitted = prepared.end(*prepared.loop(state))
    if fitted.history.reason == REASONS[TERMINATED]:
        error = Terminated("SIGTERM ended the run")
        error.params, error.history = fitted
        raise error
    return fitted


class _Run:
    """What a run works with: it is opened, it loops, and it ends."""

    def __init__(
        self,
        rule: Rule,
        params: Any,
        batches: Batches,
        loss: Loss | None,
        options: Options,
    ):
        rule = self.rule = for_rows(rule, batches.num_data)
        self.loss, self.options = loss, options
        self.config = _described(batches, options.seed, options.config)
        self.devices = _devices(rule, loss, params, batches, options.latent_parts)
        self.params, self.complete = divided(params)
        score = options.score
        self.score = score and jax.jit(_completed(score, self.complete))
        self.batches = self.devices.shared(batches)
        self.is_first = self.devices.is_first
        _check_alike(self.config)
        self.signals = Signals()
        is_alone = self.devices.processes == 1
        self.watchdog = Watchdog(None if is_alone else distributed.limit("PATIENCE"))
        most = STEPS if options.minutes is None else None
        self.steps = most if options.steps is None else int(options.steps)
        every = max(1, min((self.steps or STEPS) // RECORDS, LONGEST))
        self.every = 1 if rule.is_over is not None else options.log_every or every

    @contextlib.contextmanager
    def open(self) -> Iterator[State]:
        """The initial state; what the run holds is released at the end of the block."""
        options, devices = self.options, self.devices
        state = first_state(self.rule, self.params, has_score=self.score is not None)
        checkpoint = options.checkpoint if self.is_first else None
        saver = self.saver = Saver(checkpoint, options.save_seconds, self.config)
        threads = few_threads(largest(self.params))
        with threads, contextlib.closing(saver), self.signals, self.watchdog:
            found = saver.restore(state, options.resume and self.is_first)
            state, spent = devices.broadcast(found)
            del found  # or it would be in memory for as long as the run
            state, step = devices.spread(state), int(state.step)
            self.history = History(options.log_path, self.is_first)
            self.history.begin(step)
            self.clock = Clock(float(spent))
            self.caller = Caller(
                self.rule,
                self.batches,
                options.seed,
                self.every,
                self.steps,
                options.limit,
                devices,
                self.complete,
            )
            title = options.progress if isinstance(options.progress, str) else ""
            left = None if options.limit is None else options.limit - float(spent)
            bar = Progress(self.steps, left, step, title, self.rule.is_over is not None)
            is_shown = options.progress and self.is_first
            with bar if is_shown else Silent() as self.bar:
                yield state

    def loop(self, state: State) -> tuple[State, str]:
        """The last state, and why it is the last."""
        while True:
            step = int(state.step)
            # What each process knows for itself: all act on the same.
            known = [float(self.signals.received), self.clock.seconds()]
            known += [self.caller.measured, float(self.saver.is_due())]
            received, seconds, self.caller.seconds_per_step, due = (
                self.devices.max_over_processes(known)
            )
            if due:
                self.saver.save(self.devices.gather(state), seconds, self.history)
            reason = self._reason(state, seconds) or REASONS.get(int(received))
            if reason is None:
                state = self.caller.call(state, seconds)
                reason = "no more data" if int(state.step) == step else None
                self.watchdog.seen_alive()
            if reason is not None:
                return state, reason
            state = self._reported(state)

    def _reason(self, state: State, seconds: float) -> str | None:
        """Why a run is over, if it is."""
        limit, patience = self.options.limit, self.options.patience
        if is_over(self.rule, state):
            return CONVERGED
        if self.steps is not None and int(state.step) >= self.steps:
            return "all steps taken"
        if limit is not None and seconds >= limit:
            return "the time is over"
        if patience is not None and int(state.best.age) >= patience:
            return f"no new best in {patience} records"
        return None

    def _reported(self, state: State) -> State:
        """Shows a state, and records it if a record is due."""
        step, record = int(state.step), None
        if self.clock.step is None:
            self.clock.begin(step)
        if int(state.tally.in_a_row) >= REFUSALS:
            alone = self.devices.local(state)
            raise _failure(self.loss, alone, self.complete, self.batches, self.history)
        is_last = step == self.steps or is_over(self.rule, state)
        if step % self.every == 0 or is_last:
            record, state = self._record(state)
            self.history.add(record)
            params = self.devices.local(state.params)
            for callback in self.options.callbacks if self.is_first else ():
                # Their own: the next steps write where the state was.
                callback(record, self.complete(copied(params)))
        self.bar.show(step, record)
        return state

    def _record(self, state: State) -> tuple[Record, State]:
        """A record of the steps since the last, and the state with a fresh tally."""
        tally, best, step = state.tally, state.best, int(state.step)
        held_out = None
        if self.score is not None:  # all processes agree on it
            own = float(self.score(self.devices.local(state.params)))
            held_out = self.devices.max_over_processes([own])[0]
        taken = int(tally.steps)
        objective = -float(tally.loss) / max(taken, 1) / (self.batches.num_data or 1)
        objective = objective if taken else float("nan")
        guard = guard_of(state.optimizer)
        record = Record(
            step=step,
            seconds=round(self.clock.seconds(), 3),
            objective=objective,
            score=held_out,
            step_size=None if guard is None else float(guard.step_size),
            halvings=None if guard is None else int(guard.halvings),
            refused=int(tally.refused) + (0 if guard is None else int(guard.refused)),
            steps_per_second=self.clock.rate(step),
        )
        value = objective if held_out is None else held_out
        if value > float(best.value):
            params = None if best.params is None else copied(state.params)
            best = Best(number(value), number(0), params)
        else:
            best = best._replace(age=number(int(best.age) + 1))
        fresh = tally._replace(loss=number(0.0), steps=number(0))
        return record, state._replace(tally=fresh, best=best)

    def end(self, state: State, reason: str) -> Fitted:
        """The result, once the last checkpoint is there."""
        last, history, devices = state, self.history, self.devices
        is_new = not len(history) or history[-1].step < int(state.step)
        if devices.max_over_processes([float(is_new)])[0]:
            # The state that is saved stays: a resumed run has records of its own.
            record, last = self._record(state)
            history.records.append(record)
        history.reason = reason
        self.bar.end(reason)
        params = last.params if self.score is None else last.best.params
        params = self.complete(devices.local(params))
        self.saver.end(devices.gather(state), self.clock.seconds(), history, params)
        devices.barrier()  # none leaves before the last checkpoint is there
        return Fitted(params, history)


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
        warn(f"{why}; one device is used", InputWarning)
    return devices if why is None else Devices()


def _check_alike(described: dict[str, Any]) -> None:
    """Raises if the processes are not of the same run."""
    runs = distributed.exchange(json.dumps(described, sort_keys=True).encode())
    for process, other in enumerate(runs):
        if other != runs[0]:
            raise InputError(
                f"process {process} has a different run from process 0: "
                f"{other.decode():.300}, not {runs[0].decode():.300}"
            )


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
    """An error with the parameters before it, and its likely cause."""
    step = int(state.step) - 1
    places = batches.places(step, 1)[0] if isinstance(batches, Arrays) else None
    is_gone = isinstance(batches, IterableBatches) and not batches.is_repeatable
    taken = None if is_gone else batches.take(step, 1)
    cause = "its batch cannot be read again"
    if taken is not None:
        batch = jax.tree.map(lambda leaf: leaf[0], taken)
        of_trained = None if loss is None else _completed(loss, complete)
        cause = likely_cause(of_trained, last_step(state), batch, places)
    history.reason = "refused"
    error = FitError(
        f"the loss or its gradient was not finite in {REFUSALS} steps in a row, the "
        f"last being step {step}; {cause}. The parameters before them are the `params` "
        "of this error, and the records its `history`"
    )
    error.params, error.history = complete(state.params), history
    return error


def _described(
    batches: Batches, seed: int, config: dict[str, Any] | None
) -> dict[str, Any]:
    """What must not change when a run is resumed."""
    ours: dict[str, Any] = {"seed": int(seed), "fraction": batches.fraction}
    ours["num_data"] = None if batches.num_data is None else float(batches.num_data)
    if hasattr(batches, "fingerprint"):
        source: Any = batches
        ours |= {"order": int(source.seed), "data": source.fingerprint()}
    theirs = config or {}
    if both := sorted(ours.keys() & theirs.keys()):
        raise InputError(f"config has {both}, which natgrad sets itself; rename them")
    return ours | theirs
