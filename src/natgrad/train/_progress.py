"""A progress bar in a terminal or a notebook, and plain lines in a log file."""

import shutil
import sys
import time
from typing import Any

from natgrad.train._devices import place
from natgrad.train._history import Record
from natgrad.train._listeners import Listener, Moment


SECONDS = 10.0
"""The time between two lines in a log file."""


class Silent(Listener):
    """Shows nothing, and closes the bar if there is one."""

    bar: Any = None

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()


class Progress(Silent):
    """Shows the progress of a run; as a context, it closes its bar."""

    def __init__(
        self,
        steps: int | None,
        seconds: int | float | None,
        begin: int = 0,
        title: str = "",
        ends_itself: bool = False,
    ):
        self.steps, self.seconds, self.begin = steps, seconds, begin
        self.title, self.ends_itself = title, ends_itself
        self.started: float | None = None
        self.shown = -SECONDS
        self.record: Record | None = None

    def __enter__(self) -> "Progress":
        if is_interactive():
            from tqdm.auto import tqdm

            # A run of so many minutes is measured by the clock.
            total = self.steps or round(self.seconds or 0)
            self.bar = tqdm(
                total=None if self.ends_itself else total,
                initial=self.begin if self.steps else 0,
                desc=f"{self.title}compiling ",
                bar_format=_form(self.steps, self.ends_itself),
                dynamic_ncols=True,
            )
        return self

    def hear(self, moment: Moment) -> None:
        self.show(moment.step, moment.record)

    def show(self, step: int, record: Record | None) -> None:
        """Shows the current step and the record, if there is a new one."""
        self.record = record or self.record
        if self.started is None:
            # What was spent on compiling says nothing of the time that is left.
            self.started, self.begin = time.monotonic(), step
            if self.bar is not None:
                self.bar.set_description_str(self.title, refresh=False)
                self.bar.unpause()
        spent = int(time.monotonic() - self.started)
        if self.bar is not None:
            if record is not None:
                self.bar.set_postfix_str(summary(record), refresh=False)
            is_counted = self.steps or self.ends_itself
            now = step if is_counted else min(spent, self.bar.total)
            self.bar.update(now - self.bar.n)
        elif record is not None and time.monotonic() - self.shown >= SECONDS:
            self.shown = time.monotonic()
            if record.step != self.steps:
                self._print(summary(record) + self._left(record.step))

    def end(self, moment: Moment, reason: str) -> None:
        """Shows the last record, and why the run ended."""
        if self.record is None:
            return
        last = f"{summary(self.record)}  {reason}"
        if self.bar is None:
            self._print(last)
        elif self.record.step != self.steps:
            self.bar.set_postfix_str(last)

    def _print(self, text: str) -> None:
        if self.record is not None:
            most = " of at most " if self.ends_itself else "/"
            most = f"{most}{self.steps}" if self.steps else ""
            line = f"{self.title}step {self.record.step}{most}  {text}"
            print(line, file=sys.stderr, flush=True)

    def _left(self, step: int) -> str:
        spent = time.monotonic() - (self.started or 0.0)
        left = float("inf")
        if self.steps and step > self.begin:
            left = spent / (step - self.begin) * (self.steps - step)
        if self.seconds:
            left = min(left, self.seconds - spent)
        if left == float("inf"):
            return ""
        return f"  {'at most ' if self.ends_itself else ''}{clock(left)} left"


def _form(steps: int | None, ends_itself: bool) -> str:
    """The format of a bar: a narrow terminal has room for its numbers only.

    A run that ends itself seldom takes all its steps, and has no share of them to show.
    """
    if ends_itself:
        most = f" of at most {steps}" if steps else ""
        return f"{{desc}}{{n_fmt}}{most} steps [{{elapsed}}]{{postfix}}"
    is_narrow = shutil.get_terminal_size().columns < 100
    bar = "{percentage:3.0f}%" if is_narrow else "{percentage:3.0f}%|{bar:16}|"
    count = " {n_fmt}/{total_fmt}" if steps else ""
    return "{desc}" + bar + count + " [{elapsed}<{remaining}]{postfix}"


def announce(what: str, is_shown: bool) -> None:
    """Says what is done where no steps are counted; several processes say it once."""
    if is_shown and place().is_first:
        print(what, file=sys.stderr, flush=True)


class Rows(Silent):
    """Shows how many rows of a table are done, and how fast."""

    def __init__(self, total: int, done: int = 0):
        self.total, self.done, self.begin = total, done, done
        self.started = self.shown = time.monotonic()

    def __enter__(self) -> "Rows":
        if is_interactive():
            from tqdm.auto import tqdm

            self.bar = tqdm(
                total=self.total,
                initial=self.done,
                unit=" rows",
                unit_scale=True,
                dynamic_ncols=True,
            )
        return self

    def add(self, rows: int) -> None:
        """Adds rows that are done."""
        self.done += rows
        if self.bar is not None:
            self.bar.update(rows)
        elif time.monotonic() - self.shown >= SECONDS:
            self.shown = time.monotonic()
            rate = (self.done - self.begin) / (self.shown - self.started)
            left = clock((self.total - self.done) / rate)
            line = f"row {self.done:,}/{self.total:,}  {rate:,.0f} rows/s  {left} left"
            print(line, file=sys.stderr, flush=True)


def summary(record: Record) -> str:
    """A record on one line."""
    parts = [f"ELBO/N {record.objective:.4g}"]
    if record.score is not None:
        parts.append(f"held-out {record.score:.4g}")
    if record.step_size is not None:
        parts.append(f"step {record.step_size:.2g}")
    if record.halvings:
        parts.append(f"halved {record.halvings}")
    if record.refused:
        parts.append(f"refused {record.refused}")
    if record.steps_per_second:
        rate = record.steps_per_second
        parts.append(f"{rate:.0f} steps/s" if rate >= 10 else f"{rate:.2g} steps/s")
    return "  ".join(parts)


def print_record(record: Record, _: object = None) -> None:
    """Prints a record as one line; a bar stays below it."""
    from tqdm.auto import tqdm

    tqdm.write(f"step {record.step}  {summary(record)}", file=sys.stderr)


def clock(seconds: float) -> str:
    """1:02:03, or 02:03."""
    minutes, seconds = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"
    )


def is_interactive() -> bool:
    """Whether the output is a terminal or a notebook."""
    # A notebook's kernel has this class; its stderr is not a terminal.
    kernel = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(kernel).__name__ == "ZMQInteractiveShell" or sys.stderr.isatty()
