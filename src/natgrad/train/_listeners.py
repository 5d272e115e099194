"""What hears of a run between its steps: its history, callbacks, bar, checkpoints."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from natgrad.errors import CheckpointError, CheckpointWarning, warn
from natgrad.train._checkpoint import FolderCheckpoints, as_json, describe
from natgrad.train._compiled import State
from natgrad.train._devices import Devices
from natgrad.train._history import History, Record
from natgrad.train._options import Options


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


class Saver(Listener):
    """Saves a run every few seconds, and resumes it; idle without checkpoints.

    A save that fails does not end the run: it warns, and the next save tries again.
    With several processes only the first one saves.
    """

    def __init__(self, options: Options, config: dict[str, Any], devices: Devices):
        self.config = as_json(config)  # refused before the run, not after it
        checkpoint = options.get("checkpoint")
        self.devices, self.is_wanted = devices, checkpoint is not None
        checkpoint = checkpoint if devices.is_first else None
        is_folder = isinstance(checkpoint, str | Path)
        self.checkpoints = FolderCheckpoints(checkpoint) if is_folder else checkpoint
        self.seconds, self.saved = options.get("save_seconds", 10.0), 0.0

    def restore(self, state: Any, is_resumed: bool) -> tuple[Any, float]:
        """The state to continue from, and the seconds that were spent on it."""
        if self.checkpoints is None:
            if is_resumed and not self.is_wanted:
                raise CheckpointError(
                    "there is nothing to resume from: give the folder as `checkpoint`"
                )
            return state, 0.0
        describe(state)  # what cannot be saved is refused now
        found = self.checkpoints.latest()
        if found is None:
            return state, 0.0
        if not is_resumed:
            raise CheckpointError(
                f"there is a checkpoint of step {found.step} already; resume=True "
                "continues from it, and another folder starts a new run"
            )
        if not {"run", "seconds"} <= found.config.keys():
            raise CheckpointError(
                f"the checkpoint of step {found.step} was not saved by a run"
            )
        ours, theirs = self.config, found.config["run"]
        changed = [
            f"{name} was {theirs.get(name)} and is {ours.get(name)}"
            for name in ours | theirs
            if name not in ours or name not in theirs or ours[name] != theirs[name]
        ]
        if changed:
            raise CheckpointError(
                f"the checkpoint of step {found.step} is from a different run: "
                + "; ".join(changed)
            )
        return found.restore(state), float(found.config["seconds"])

    def hear(self, moment: Moment) -> None:
        """Saves a run that continues, if it is time."""
        if self.is_wanted and moment.seconds - self.saved >= self.seconds:
            try:
                self._save(moment)
            except CheckpointError as error:
                warn(f"{error}; the run continues", CheckpointWarning)

    def end(self, moment: Moment, reason: str) -> None:
        """Saves the last state and waits for it."""
        if not self.is_wanted:
            return
        try:
            self._save(moment)
        except CheckpointError:  # of the save before: this one was not tried
            self._save(moment)
        self.close()

    def _save(self, moment: Moment) -> None:
        self.saved = moment.seconds
        if self.checkpoints is not None:
            config = {"run": self.config, "seconds": moment.seconds}
            self.checkpoints.save(moment.step, moment.state, config)

    def close(self) -> None:
        """Releases the folder, whatever happened."""
        if self.checkpoints is not None:
            self.checkpoints.close()


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
