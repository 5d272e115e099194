"""The options that all ways to train share."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from natgrad.train._checkpoint import FolderCheckpoints
from natgrad.train._history import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How long a run takes, what it reports, and where it saves.

    A run ends after `steps`, after `minutes`, or after `patience` records in a row
    without a new best: of `score`, a function of the parameters that should grow, or of
    the objective if there is no score. With a score, `fit` returns the best parameters,
    otherwise the last. Ctrl-C ends it early: it returns what it has, if that is more
    than the start. `stop_on_signals` is for scripts that a scheduler may end.

    natgrad makes a record every `log_every` steps, writes it as a line of the file
    `log`, and passes it to each of the `callbacks` with the parameters. `progress` may
    be a title for the bar. The folder `checkpoint` gets the whole state every
    `save_seconds` and at the end. With `resume` the run continues from there,
    bit-identical to an uninterrupted one. natgrad saves `config` too, and it must not
    change.

    All devices share the rows of a batch, in all processes that have called
    `natgrad.distributed.initialize`.

    Raises:
        InputError: If `steps`, `minutes`, `patience` or `log_every` is out of range.

    >>> natgrad.train.Options(steps=100, progress=False).steps
    100
    >>> gp.fit(model, (x, y), steps=3, progress=False).history.reason
    'all steps taken'
    """

    steps: int | None = None
    minutes: int | float | None = None
    patience: int | None = None
    score: Callable[[Any], Any] | None = None
    seed: int = 0
    progress: bool | str = True
    log: str | Path | None = None
    log_every: int | None = None
    callbacks: Sequence[Callable[[Record, Any], None]] = ()
    checkpoint: str | Path | FolderCheckpoints | None = None
    save_seconds: int | float = 10.0
    resume: bool = False
    config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "minutes", "patience", "log_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}; it should be above 0")
            if value is not None and name != "minutes" and value != int(value):
                raise InputError(f"{name} is {value}; it should be a whole number")

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Options":
        """The options with these names.

        Raises:
            TypeError: If one of them is unknown; the message names it.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(given.keys() - names):
            raise TypeError(f"unknown option {unknown[0]!r}; there are {names}")
        return cls(**given)

    @property
    def limit(self) -> float | None:
        """The seconds that a run may take."""
        return None if self.minutes is None else 60 * self.minutes

    @property
    def log_path(self) -> str | Path | None:
        """The file of the records, by default in the folder of checkpoints."""
        if self.log is None and isinstance(self.checkpoint, str | Path):
            return Path(self.checkpoint) / "history.jsonl"
        return self.log
