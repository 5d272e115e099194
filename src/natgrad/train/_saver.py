"""Saves the state of a run every few seconds, and resumes it."""

from pathlib import Path
from typing import Any

from natgrad._warnings import warn
from natgrad.errors import CheckpointError, CheckpointWarning
from natgrad.train._checkpoint import FolderCheckpoints, as_json, describe
from natgrad.train._devices import Devices
from natgrad.train._listeners import Moment
from natgrad.train._options import Options


class Saver:
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
