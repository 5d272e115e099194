"""Saves the state of a run every few seconds, and resumes it."""

import time
from importlib import metadata
from pathlib import Path
from typing import Any

from natgrad._warnings import warn
from natgrad.errors import CheckpointError, CheckpointWarning
from natgrad.train._checkpoint import FolderCheckpoints, as_json, describe
from natgrad.train._history import History


class Saver:
    """Saves a run every few seconds, and resumes it; idle without checkpoints.

    A save that fails does not end the run: it warns, and the next save tries again. If
    the last one fails, the error has the result of the run. With several processes only
    the first one saves.
    """

    def __init__(
        self,
        checkpoint: str | Path | FolderCheckpoints | None,
        seconds: int | float,
        config: dict[str, Any],
    ):
        self.config = as_json(config)  # refused before the run, not after it
        is_folder = isinstance(checkpoint, str | Path)
        self.checkpoints = FolderCheckpoints(checkpoint) if is_folder else checkpoint
        self.seconds, self.saved = seconds, time.monotonic()

    def restore(self, state: Any, is_wanted: bool) -> tuple[Any, float]:
        """The state to continue from, and the seconds that were spent on it."""
        if self.checkpoints is None:
            if is_wanted:
                raise CheckpointError(
                    "there is nothing to resume from: give the folder as `checkpoint`"
                )
            return state, 0.0
        describe(state)  # what cannot be saved is refused now
        found = self.checkpoints.latest()
        if found is None:
            return state, 0.0
        if not is_wanted:
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

    def is_due(self) -> bool:
        """Whether it is time to save."""
        is_late = time.monotonic() - self.saved >= self.seconds
        return self.checkpoints is not None and is_late

    def save(self, state: Any, seconds: float, history: History) -> None:
        """Saves the state of a run that continues."""
        try:
            self._save(state, seconds, history)
        except CheckpointError as error:
            warn(f"{error}; the run continues", CheckpointWarning)

    def end(self, state: Any, seconds: float, history: History, params: Any) -> None:
        """Saves the last state and waits for it; `params` is the result of the run."""
        if self.checkpoints is None:
            return
        try:
            try:
                self._save(state, seconds, history)
            except CheckpointError:  # of the save before: this one was not tried
                self._save(state, seconds, history)
            self.checkpoints.close()
        except CheckpointError as error:
            error.params, error.history = params, history
            error.add_note("The result is in `params` and `history` of this error.")
            raise

    def _save(self, state: Any, seconds: float, history: History) -> None:
        self.saved = time.monotonic()
        if self.checkpoints is not None:
            version = metadata.version("natgrad")
            config = {"run": self.config, "seconds": seconds, "natgrad": version}
            score = history[-1].score if len(history) else None
            self.checkpoints.save(int(state.step), state, config, score)

    def close(self) -> None:
        """Releases the folder, whatever happened."""
        if self.checkpoints is not None:
            self.checkpoints.close()
