"""What hears of a run between its steps: its history, callbacks, bar, checkpoints."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from natgrad.train._compiled import State
from natgrad.train._history import History, Record


class Moment(NamedTuple):
    """A run between two calls of its steps, with its record if one is due.

    All processes have agreed on the seconds it has taken.
    """

    state: State
    seconds: float
    record: Record | None = None

    @property
    def step(self) -> int:
        return int(self.state.step)


class Listener:
    """Hears of every moment of a run, and of its end."""

    def hear(self, moment: Moment) -> None: ...

    def end(self, moment: Moment, reason: str) -> None: ...


class Recording(Listener):
    """Keeps the records of a run in its history."""

    def __init__(self, history: History):
        self.history = history

    def hear(self, moment: Moment) -> None:
        if moment.record is not None:
            self.history.add(moment.record)

    def end(self, moment: Moment, reason: str) -> None:
        if moment.record is not None:  # not in the file: a resumed run has its own
            self.history.records.append(moment.record)
        self.history.reason = reason


@dataclasses.dataclass
class Callbacks(Listener):
    """Passes each record to functions of the user's, with the parameters."""

    callbacks: Sequence[Callable[[Record, Any], None]]
    params: Callable[[State], Any]

    def hear(self, moment: Moment) -> None:
        if moment.record is not None:
            for callback in self.callbacks:
                callback(moment.record, self.params(moment.state))


class Clock:
    """How long a run has taken, over all times it was resumed."""

    def __init__(self, spent: float):
        self.started = time.monotonic() - spent
        self.step: int | None = None
        self.at = 0.0

    def begin(self, step: int) -> None:
        """Counts steps from here on: the first call has compiled them."""
        self.step, self.at = step, time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def rate(self, step: int) -> float | None:
        """Steps per second since the last call."""
        done, spent = step - (self.step or step), time.monotonic() - self.at
        self.begin(step)
        return round(done / spent, 3) if done else None
