"""Ends a run in order after SIGTERM or Ctrl-C, for a program that asks for it."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


INTERRUPTED, TERMINATED = "interrupted", "terminated"
"""The reasons of a run that was ended."""

CODES = {0.0: None, 1.0: INTERRUPTED, 2.0: TERMINATED}
"""What `requested` returns, and the reason that it stands for."""

_received: list[float] = []


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Ends the runs inside in order after the first SIGTERM or Ctrl-C.

    Use it in a script that a scheduler such as Slurm may end. After Ctrl-C, a run ends
    between two steps and returns what it has. After SIGTERM it also saves its last
    checkpoint, and raises `natgrad.errors.Terminated`. Several processes end at the
    same step. A second signal does what it does outside. As all handlers of signals,
    it works in the main thread only.

    >>> with natgrad.train.stop_on_signals():
    ...     fitted = gp.fit(model, (x, y), steps=3, progress=False)
    """
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def receive(number: int, _: object) -> None:
        _received.append(2.0 if number == signal.SIGTERM else 1.0)
        restore()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, receive)
        yield
    finally:
        restore()
        _received.clear()


def requested() -> float:
    """Which signal has asked for the end of a run: a key of `CODES`."""
    return max(_received, default=0.0)
