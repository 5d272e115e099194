"""A progress bar in a terminal or a notebook, and plain lines in a log file."""

import sys
import time
from typing import Any

from natgrad.train.history import Record


SECONDS = 10.0
"""How long a log file goes without a line."""


class Progress:
    """Shows how a run stands; as a context, it cleans up after itself."""

    def __init__(self, steps: int | None, seconds: float | None, begin: int = 0):
        self.steps, self.seconds = steps, seconds
        self.begin, self.started, self.shown = begin, time.monotonic(), -SECONDS
        self.bar: Any = None
        self.record: Record | None = None

    def __enter__(self) -> "Progress":
        if is_interactive():
            from tqdm.auto import tqdm

            # A run of so many minutes is measured by the clock.
            total = self.steps or (self.seconds and round(self.seconds))
            unit, begin = ("step", self.begin) if self.steps else ("s", 0)
            self.bar = tqdm(total=total, initial=begin, unit=unit, dynamic_ncols=True)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.bar is not None:
            if self.record is not None:
                self.bar.set_postfix_str(summary(self.record), refresh=False)
            self.bar.close()

    def show(self, step: int, record: Record | None) -> None:
        """Tells the step reached and, if there is a new one, the record."""
        self.record = record or self.record
        if self.bar is not None:
            if record is not None:
                self.bar.set_postfix_str(summary(record), refresh=False)
            spent = int(time.monotonic() - self.started)
            now = step if self.steps else min(spent, self.bar.total)
            self.bar.update(now - self.bar.n)
        elif record is not None and time.monotonic() - self.shown >= SECONDS:
            self._print(record)

    def end(self, reason: str) -> None:
        """The last line of a log file."""
        if self.bar is None and self.record is not None:
            self._print(self.record, f"  ended: {reason}")

    def _print(self, record: Record, more: str = "") -> None:
        self.shown = time.monotonic()
        of = f"/{self.steps}" if self.steps else ""
        left = self._left(record.step)
        line = f"step {record.step}{of}  {summary(record)}"
        if record.steps_per_second:
            line += f"  {record.steps_per_second:.3g} steps/s"
        if left and not more:
            line += f"  {left} left"
        print(line + more, file=sys.stderr, flush=True)

    def _left(self, step: int) -> str:
        spent, done = time.monotonic() - self.started, step - self.begin
        by_steps = by_time = float("inf")
        if self.steps and done:
            by_steps = spent / done * (self.steps - step)
        if self.seconds:
            by_time = self.seconds - spent
        left = min(by_steps, by_time)
        return "" if left == float("inf") else clock(left)


class Silent:
    """Shows nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *exception: Any) -> None: ...

    def show(self, step: int, record: Record | None) -> None: ...

    def end(self, reason: str) -> None: ...


def summary(record: Record) -> str:
    """A record in few words."""
    parts = [f"bound/N {record.objective:.4g}"]
    if record.score is not None:
        parts.append(f"held-out {record.score:.4g}")
    if record.step_size is not None:
        parts.append(f"step {record.step_size:.2g}")
    if record.halvings:
        parts.append(f"halved {record.halvings}")
    if record.refused:
        parts.append(f"refused {record.refused}")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """1:02:03, or 02:03."""
    minutes, seconds = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"
    )


def is_interactive() -> bool:
    """Whether someone is looking: at a terminal, or at a notebook."""
    # A notebook's kernel has this class; its stderr is not a terminal.
    kernel = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(kernel).__name__ == "ZMQInteractiveShell" or sys.stderr.isatty()
