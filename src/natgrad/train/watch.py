"""The clock of a run, and the signals that end it."""

import signal
import threading
import time
from typing import Any


class Clock:
    """How long a run has gone on, over all times it was resumed."""

    def __init__(self, spent: float, step: int):
        self.started = time.monotonic() - spent
        self.step, self.at = step, time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def rate(self, step: int) -> float:
        """Steps per second since this was last asked."""
        now = time.monotonic()
        rate = (step - self.step) / max(now - self.at, 1e-9)
        self.step, self.at = step, now
        return round(rate, 3)


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
