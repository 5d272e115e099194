"""Training: a fold of a step over batches, many steps to a call."""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from natgrad._runtime.threads import few_threads, largest
from natgrad.data._batches import Arrays, Batches, IterableBatches, as_batches
from natgrad.errors import CheckpointError, FitError, InputError, Terminated
from natgrad.train._compiled import (
    REFUSALS,
    Best,
    Caller,
    State,
    first_state,
    is_over,
    number,
)
from natgrad.train._constants import NONE, Constants, divided
from natgrad.train._devices import place
from natgrad.train._diagnosis import likely_cause
from natgrad.train._history import History, Record
from natgrad.train._listeners import Callbacks, Clock, Moment, Recording, Saver
from natgrad.train._mesh import devices_for
from natgrad.train._options import Options, check, log_path
from natgrad.train._profile import profile_rule
from natgrad.train._progress import Progress, Silent
from natgrad.train._rules import (
    Loss,
    Rule,
    default_rule,
    for_data,
    guard_of,
    in_turn,
    last_step,
)
from natgrad.train._signals import CODES, INTERRUPTED, TERMINATED, requested


STEPS = 2500
"""How many steps a run takes by default; benchmarks/decay.py compares it with more."""

RECORDS = 50
"""How many records a run of known length makes."""

LONGEST = 50
"""How many steps a record stands for, at most."""

CONVERGED = "converged"
"""The reason of a run that ends at its optimum."""


class Fitted(NamedTuple):
    """The result of a run: the trained parameters and the history."""

    params: Any
    history: History


def fit(
    loss: Loss,
    params: PyTree,
    data: object,
    *,
    optimizer: optax.GradientTransformation | Sequence[Any] | str | None = None,
    batch_size: int = 256,
    **options: Unpack[Options],
) -> Fitted:
    """Trains any tree of parameters, with natural gradients for its distributions.

    Returns them as `params`, and the `history` of the run.

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
    batches = as_batches(data, batch_size, options.get("seed", 0))
    if isinstance(optimizer, str):
        batches, rule = _profiled(loss, batches, optimizer)
    elif optimizer is None:
        rule = default_rule(loss, params, batches.fraction)
    elif isinstance(optimizer, optax.GradientTransformation):
        rule = in_turn(loss, optimizer)
    else:
        rule = in_turn(loss, *optimizer)
    return run(rule, params, batches, loss=loss, **options)


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


class _AgreedInterrupt(KeyboardInterrupt):
    """Ctrl-C before the first step, which all processes know of."""


def with_fallback(earlier: Fitted | None, train: Callable[[], Fitted]) -> Fitted:
    """What `train` returns, or an earlier run if Ctrl-C comes before its first step."""
    try:
        return train()
    except KeyboardInterrupt as error:
        is_known = place().processes == 1 or isinstance(error, _AgreedInterrupt)
        if earlier is None or not len(earlier.history) or not is_known:
            raise
        earlier.history.reason = INTERRUPTED
        return earlier


def run(
    rule: Rule,
    params: PyTree,
    batches: Batches,
    *,
    loss: Loss | None = None,
    **options: Unpack[Options],
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
    check(options)
    fitted = _Run(rule, params, batches, loss, options).result()
    if fitted.history.reason == TERMINATED:
        error = Terminated("SIGTERM ended the run")
        error.params, error.history = fitted
        raise error
    return fitted


class _Run:
    """One run: what it works with, its loop, and its result."""

    def __init__(
        self,
        rule: Rule,
        params: PyTree,
        batches: Batches,
        loss: Loss | None,
        options: Options,
    ):
        rule = self.rule = for_data(rule, batches.num_data, batches.fraction)
        self.loss, self.options = loss, options
        self.seed, minutes = options.get("seed", 0), options.get("minutes")
        self.config = _described(batches, self.seed, options.get("config") or {})
        devices = self.devices = devices_for(rule, loss, params, batches)
        self.batches = devices.share(batches, self.config)
        self.params, self.complete = divided(params)
        score = options.get("score")
        self.score = score and jax.jit(_completed(score, self.complete))
        self.limit = None if minutes is None else 60 * minutes
        steps = options.get("steps") or (STEPS if minutes is None else None)
        self.steps = None if steps is None else int(steps)
        every = max(1, min((self.steps or STEPS) // RECORDS, LONGEST))
        every = options.get("log_every") or every
        self.every = 1 if rule.is_over is not None else every

    def result(self) -> Fitted:
        """Takes the steps; what the run holds is released at the end."""
        devices = self.devices
        trained = jax.tree.map(jnp.asarray, self.params)
        first = first_state(self.rule, self.score is not None, trained)
        saver = Saver(self.options, self.config, devices)
        threads = few_threads(largest(self.params))
        with contextlib.closing(saver), threads, devices.running():
            is_resumed = self.options.get("resume", False)
            state, spent = devices.begin(*saver.restore(first, is_resumed))
            saver.saved = spent
            self.history = History(log_path(self.options), devices.is_first)
            self.history.begin(int(state.step))
            self.clock = Clock(spent)
            length = (self.every, self.steps, self.limit)
            self.caller = Caller(
                self.rule, self.batches, self.seed, *length, devices, self.complete
            )
            bar = self._bar(state, spent)
            callbacks = self.options.get("callbacks", ()) if devices.is_first else ()
            shown = lambda state: self.complete(devices.local(state.params))
            called = Callbacks(callbacks, shown)
            self.listeners = (Recording(self.history), called, bar, saver)
            with bar:
                return self._end(*self._loop(state))

    def _loop(self, state: State) -> tuple[Moment, str]:
        """The last moment, and why it is the last."""
        moment = Moment(state, self._seconds())
        try:
            while (reason := self._reason(moment)) is None:
                state = self.caller.call(moment.state, moment.seconds)
                if int(state.step) == moment.step:
                    return moment, "no more data"
                moment = self._after(state)
                for listener in self.listeners:
                    listener.hear(moment)
            if reason == INTERRUPTED and moment.step == 0:
                raise _AgreedInterrupt
            return moment, reason
        except KeyboardInterrupt:
            if moment.step == 0 or not self.devices.is_one_process:
                raise
            return moment, INTERRUPTED

    def _seconds(self) -> float:
        """The time, on which all processes act."""
        known = [self.clock.seconds(), self.caller.measured]
        seconds, self.caller.seconds_per_step = self.devices.agree(known)
        return seconds

    def _after(self, state: State) -> Moment:
        """The moment after a call of the steps."""
        step, record = int(state.step), None
        if self.clock.step is None:
            self.clock.begin(step)
        if int(state.tally.in_a_row) >= REFUSALS:
            raise self._failure(self.devices.local(state))
        if step % self.every == 0 or step == self.steps or is_over(self.rule, state):
            record, state = self._record(state)
        return Moment(state, self._seconds(), record)

    def _reason(self, moment: Moment) -> str | None:
        """Why a run is over, if it is."""
        state, seconds, _ = moment
        limit, patience = self.limit, self.options.get("patience")
        if is_over(self.rule, state):
            return CONVERGED
        if self.steps is not None and int(state.step) >= self.steps:
            return "all steps taken"
        if limit is not None and seconds >= limit:
            return "the time is over"
        if patience is not None and int(state.best.age) >= patience:
            return f"no new best in {patience} records"
        (asked,) = self.devices.agree([requested()])
        return CODES[asked]

    def _record(self, state: State) -> tuple[Record, State]:
        """A record of the steps since the last, and the state with a fresh tally."""
        tally, best, step = state.tally, state.best, int(state.step)
        held_out = None
        if self.score is not None:  # all processes agree on it
            own = float(self.score(self.devices.local(state.params)))
            held_out = self.devices.agree([own])[0]
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
            params = None if best.params is None else state.params
            best = Best(number(value), number(0), params)
        else:
            best = best._replace(age=number(int(best.age) + 1))
        fresh = tally._replace(loss=number(0.0), steps=number(0))
        return record, state._replace(tally=fresh, best=best)

    def _end(self, moment: Moment, reason: str) -> Fitted:
        """The result, once all listeners have heard of the end."""
        last, history = moment.state, self.history
        is_new = not len(history) or history[-1].step < moment.step
        record = None
        if self.devices.agree([float(is_new)])[0]:
            # The state that is saved stays: a resumed run has records of its own.
            record, last = self._record(last)
        params = last.params if self.score is None else last.best.params
        fitted = Fitted(self.complete(self.devices.local(params)), history)
        end = moment._replace(seconds=self.clock.seconds(), record=record)
        try:
            for listener in self.listeners:
                listener.end(end, reason)
        except CheckpointError as error:
            error.params, error.history = fitted
            error.add_note("The result is in `params` and `history` of this error.")
            raise
        return fitted

    def _failure(self, state: State) -> FitError:
        """An error with the parameters before it, and its likely cause."""
        step, batches = int(state.step) - 1, self.batches
        places = batches.places(step, 1)[0] if isinstance(batches, Arrays) else None
        is_gone = isinstance(batches, IterableBatches) and not batches.is_repeatable
        taken = None if is_gone else batches.take(step, 1)
        cause = "its batch cannot be read again"
        if taken is not None:
            batch = jax.tree.map(lambda leaf: leaf[0], taken)
            loss = self.loss and _completed(self.loss, self.complete)
            cause = likely_cause(loss, last_step(state), batch, places)
        self.history.reason = "refused"
        error = FitError(
            f"the loss or its gradient was not finite in {REFUSALS} steps in a row, "
            f"the last being step {step}; {cause}. The parameters before them are the "
            "`params` of this error, and the records its `history`"
        )
        error.params, error.history = self.complete(state.params), self.history
        return error

    def _bar(self, state: State, spent: float) -> Silent:
        progress, limit = self.options.get("progress", True), self.limit
        if not (progress and self.devices.is_first):
            return Silent()
        title = progress if isinstance(progress, str) else ""
        left = None if limit is None else limit - spent
        ends_itself = self.rule.is_over is not None
        return Progress(self.steps, left, int(state.step), title, ends_itself)


def _completed(function: Callable[..., Any], complete: Constants) -> Any:
    """A function of the parameters and more, as one of those that are trained."""
    if complete == NONE:
        return function
    return lambda trained, *rest: function(complete(trained), *rest)


def _described(batches: Batches, seed: int, theirs: dict[str, Any]) -> dict[str, Any]:
    """What must not change when a run is resumed."""
    ours: dict[str, Any] = {"seed": int(seed), "fraction": batches.fraction}
    ours["num_data"] = None if batches.num_data is None else float(batches.num_data)
    if hasattr(batches, "fingerprint"):
        source: Any = batches
        ours |= {"order": int(source.seed), "data": source.fingerprint()}
    if both := sorted(ours.keys() & theirs.keys()):
        raise InputError(f"config has {both}, which natgrad sets itself; rename them")
    return ours | theirs
