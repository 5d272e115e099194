"""The clock of a run, and the signals that end it."""

import os
import signal
import sys
import threading
import time
from typing import Any

from natgrad import distributed


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


INTERRUPTED, TERMINATED = 1, 2
REASONS = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Signals:
    """Lets a run end in order after its first Ctrl-C or SIGTERM."""

    def __init__(self) -> None:
        self.received = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _receive(self, number: int, frame: Any) -> None:
        self.received = TERMINATED if number == signal.SIGTERM else INTERRUPTED
        self.__exit__()


class Watchdog:
    """Ends a process that takes no step for too long.

    A process that is stuck keeps all others waiting, and nothing else would end them.
    The time is measured from its first steps, so that compiling has no limit.
    """

    def __init__(self, seconds: float | None):
        self.seconds = seconds
        self.seen: float | None = None
        self.is_over = threading.Event()

    def __enter__(self) -> "Watchdog":
        if self.seconds is not None:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.is_over.set()

    def seen_alive(self) -> None:
        self.seen = time.monotonic()

    def _watch(self) -> None:
        limit = self.seconds or 0.0
        while not self.is_over.wait(min(1.0, limit / 4)):
            if self.seen is not None and time.monotonic() - self.seen > limit:
                text = f"no step in {limit:g} seconds: exiting; other processes will"
                print(f"{text} follow", file=sys.stderr, flush=True)
                os._exit(distributed.STUCK)
