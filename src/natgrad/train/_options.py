"""The options that all ways to train share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from natgrad._text import choices
from natgrad.errors import InputError
from natgrad.train._checkpoint import FolderCheckpoints
from natgrad.train._history import Record


class Options(TypedDict, total=False):
    """How long a run takes, what it reports, and where it saves.

    A run ends after `steps`, after `minutes`, or after `patience` records in a row
    without a new best: of `score`, a function of the parameters that should grow, or of
    the objective if there is no score. With a score, `fit` returns the best parameters,
    otherwise the last. Ctrl-C ends it early: it returns what it has, if that is more
    than the start. `stop_on_signals` is for scripts that a scheduler may end. `seed`
    sets the order of the rows and the random keys of the loss.

    natgrad makes a record every `log_every` steps, writes it as a line of the file
    `log`, and passes it to each of the `callbacks` with the parameters. `progress` may
    be a title for the bar. The folder `checkpoint` gets the whole state every
    `save_seconds`, by default 10, and at the end. With `resume` the run continues from
    there, bit-identical to an uninterrupted one. natgrad saves `config` too, and it
    must not change.

    All devices share the rows of a batch, in all processes that have called
    `natgrad.distributed.initialize`.

    >>> options = natgrad.train.Options(steps=3, progress=False)
    >>> gp.fit(model, (x, y), **options).history.reason
    'all steps taken'
    """

    steps: int | None
    minutes: int | float | None
    patience: int | None
    score: Callable[[Any], Any] | None
    seed: int
    progress: bool | str
    log: str | Path | None
    log_every: int | None
    callbacks: Sequence[Callable[[Record, Any], None]]
    checkpoint: str | Path | FolderCheckpoints | None
    save_seconds: int | float
    resume: bool
    config: dict[str, Any] | None


def check(options: Options) -> None:
    """Raises an error unless all options are known and in range."""
    known = Options.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        there = choices(unknown[0], known)
        raise TypeError(f"unknown option {unknown[0]!r}; there are {there}")
    for name in ("steps", "minutes", "patience", "log_every"):
        value = options.get(name)
        if value is not None and not value > 0:
            raise InputError(f"{name} is {value}; it should be above 0")
        if value is not None and name != "minutes" and value != int(value):
            raise InputError(f"{name} is {value}; it should be a whole number")


def log_path(options: Options) -> str | Path | None:
    """The file of the records, by default in the folder of checkpoints."""
    log, checkpoint = options.get("log"), options.get("checkpoint")
    if log is None and isinstance(checkpoint, str | Path):
        return Path(checkpoint) / "history.jsonl"
    return log
