"""Saves the state of a run now and then, and takes it up again."""

import json
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from natgrad.errors import CheckpointError, CheckpointWarning, InputError
from natgrad.train._checkpoint import Checkpoints, OrbaxCheckpoints
from natgrad.train._history import History
from natgrad.train._snapshot import described


class Keeper:
    """What stands between a loop and its checkpoints, if it has any.

    A save that fails does not end the run: it is said, and tried again. If the last one
    fails the run has ended, and the error has what it gave. Of several processes the
    first has one, and tells the others.
    """

    def __init__(
        self,
        checkpoint: str | Path | Checkpoints | None,
        seconds: int | float,
        config: dict[str, Any],
    ):
        try:  # as it will be read back; and refused before the run, not after it
            self.config = json.loads(json.dumps(config))
        except (TypeError, ValueError) as error:
            raise InputError(f"config cannot be written as JSON: {error}") from error
        is_folder = isinstance(checkpoint, str | Path)
        self.folder = Path(checkpoint) if is_folder else None
        self.checkpoints = OrbaxCheckpoints(checkpoint) if is_folder else checkpoint
        self.seconds = seconds
        self.saved = time.monotonic()

    def restore(self, state: Any, is_wanted: bool) -> tuple[Any, float]:
        """The state to go on from, and the seconds that were spent on it."""
        if self.checkpoints is None:
            if is_wanted:
                raise CheckpointError(
                    "there is nothing to resume from: give the folder as `checkpoint`"
                )
            return state, 0.0
        described(state)  # what cannot be saved is refused now
        found = self.checkpoints.latest()
        if found is None:
            return state, 0.0
        if not is_wanted:
            raise CheckpointError(
                f"there is a checkpoint of step {found.step} already; to go on from it "
                "say resume=True, to begin anew give another folder"
            )
        told = found.config["run"]
        names = [
            name for name in self.config | told if _differs(name, self.config, told)
        ]
        if names:
            listed = "; ".join(
                f"{name} was {told.get(name)} and is {self.config.get(name)}"
                for name in names
            )
            raise CheckpointError(
                f"the checkpoint of step {found.step} is of another run: {listed}"
            )
        return found.restore(state), float(found.config["seconds"])

    def is_due(self) -> bool:
        """Whether it is time to save."""
        is_late = time.monotonic() - self.saved >= self.seconds
        return self.checkpoints is not None and is_late

    def keep(self, state: Any, seconds: float, history: History) -> None:
        """Saves the state of a run that goes on."""
        try:
            self._save(state, seconds, history)
        except CheckpointError as error:
            warnings.warn(f"{error}; the run goes on", CheckpointWarning, 3)

    def end(self, state: Any, seconds: float, history: History, given: Any) -> None:
        """Saves the last state, and waits until it is there; `given` is the result."""
        if self.checkpoints is None:
            return
        try:
            try:
                try:
                    self._save(state, seconds, history)
                except CheckpointError:  # of the save before: this one was not tried
                    self._save(state, seconds, history)
            finally:
                self.checkpoints.close()
        except CheckpointError as error:
            error.params, error.history = given, history
            error.add_note(
                "The parameters are the `params` of this error, and the records its "
                "`history`."
            )
            raise

    def _save(self, state: Any, seconds: float, history: History) -> None:
        self.saved = time.monotonic()
        if self.checkpoints is not None:
            version = metadata.version("natgrad")
            config = {"run": self.config, "seconds": seconds, "natgrad": version}
            score = history[-1].score if len(history) else None
            self.checkpoints.save(int(state.step), state, config, score)

    def close(self) -> None:
        """Lets go of the folder, whatever happened."""
        if self.checkpoints is not None:
            self.checkpoints.close()


def _differs(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return name not in ours or name not in theirs or ours[name] != theirs[name]
