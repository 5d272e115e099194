"""The records of a run, as a table, a picture and lines of a file."""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from natgrad._annotations import Count, MaybeNaN, Span
from natgrad._atomic import replacing
from natgrad._text import printable
from natgrad.errors import CheckpointWarning, warn


@dataclasses.dataclass(frozen=True)
class Record:
    """The progress of a run after a step.

    `objective` is the ELBO per row if the number of rows is known, otherwise the
    negative loss: the mean over all steps since the previous record. `score` is that of
    held-out data. `step_size` is that of the last natural step. `halvings` and
    `refused` count all steps so far: how often a natural step was halved, and how many
    steps were not taken because no half of them passed the test or something was not
    finite.

    >>> natgrad.train.Record(step=10, seconds=0.5, objective=-1.2).numbers()
    {'step': 10, 'seconds': 0.5, 'objective': -1.2, 'refused': 0}
    """

    step: Count
    seconds: Span
    objective: MaybeNaN
    score: MaybeNaN | None = None
    step_size: MaybeNaN | None = None
    halvings: Count | None = None
    refused: Count = 0
    steps_per_second: MaybeNaN | None = None

    def numbers(self) -> dict[str, int | float]:
        """The fields that are known, by name."""
        known = dataclasses.asdict(self).items()
        return {name: value for name, value in known if value is not None}


class History:
    """The records of a run, in order; `reason` says why the run ended.

    With a `path`, each record is also a line of JSON in that file, written when it is
    added. Of several processes only the one with `is_writer` writes.

    >>> history = natgrad.train.History()
    >>> history.add(natgrad.train.Record(step=10, seconds=0.5, objective=-1.2))
    >>> len(history), history.column("objective")
    (1, [-1.2])
    """

    def __init__(self, path: str | Path | None = None, is_writer: bool = True):
        self.records: list[Record] = []
        self.is_writer = is_writer
        self.path = None if path is None else Path(path)
        self.reason = "not ended"

    def begin(self, step: int) -> None:
        """Reads the records in the file up to a step, and drops later ones."""
        if self.path is None:
            return
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        kept = [record for line in lines if (record := _parsed(line)) is not None]
        self.records = [record for record in kept if record.step <= step]
        if not self.is_writer:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as draft:
            draft.write_text("".join(_line(record) for record in self.records))

    def add(self, record: Record) -> None:
        """Appends a record, to the file too."""
        self.records.append(record)
        if self.path is not None and self.is_writer:
            try:
                with self.path.open("a") as file:
                    file.write(_line(record))
            except OSError as error:  # a full disk is no reason to lose the run
                warn(
                    f"a record could not be written to {self.path}: {error}; the run "
                    "continues",
                    CheckpointWarning,
                )

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __getitem__(self, place: int) -> Record:
        return self.records[place]

    def column(self, name: str) -> list[Any]:
        """One field of all records, as a list."""
        return [getattr(record, name) for record in self.records]

    def __repr__(self) -> str:
        if not self.records:
            return "History()"
        last = ", ".join(f"{key}={value}" for key, value in self[-1].numbers().items())
        reason = printable(self.reason)
        return f"History({len(self)} records, {reason}; last: {last})"

    def thinned(self, most: int) -> "History":
        """At most `most` of the records, evenly spread, including the last."""
        history = History()
        history.reason = self.reason
        stride = max(1, math.ceil(len(self) / most))
        history.records = self.records[::-1][::stride][::-1]
        return history

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each record."""
        import pandas

        return pandas.DataFrame([dataclasses.asdict(record) for record in self])


def shown_range(values: list[float | None]) -> tuple[float, float]:
    """From the lowest to the highest of the values, without a steep start."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    known = sorted(known) or [0.0]
    low, high = known[len(known) // 20], known[-1]
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _line(record: Record) -> str:
    return json.dumps(record.numbers()) + "\n"


def _parsed(line: str) -> Record | None:
    """A record, or None if the line was cut off when the process died."""
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError):
        return None
