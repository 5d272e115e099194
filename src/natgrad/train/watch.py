"""The clock of a run, and the signals that end it."""

import signal
import threading
import time
from typing import Any


class Clock:
    """How long a run has gone on, over all times it was resumed."""

    def __init__(self, spent: float):
        self.started = time.monotonic() - spent
        self.step: int | None = None
        self.at = 0.0

    def begin(self, step: int) -> None:
        """From here on steps are counted: the first call has compiled them."""
        self.step, self.at = step, time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def rate(self, step: int) -> float | None:
        """Steps per second since this was last asked."""
        done, spent = step - (self.step or step), time.monotonic() - self.at
        self.begin(step)
        return round(done / spent, 3) if done else None


class Signals:
    """Lets a run end in order when it is interrupted for the first time."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.is_terminated = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _heard(self, number: int, frame: Any) -> None:
        self.is_terminated = number == signal.SIGTERM
        self.reason = "terminated" if self.is_terminated else "interrupted"
        self.__exit__()
