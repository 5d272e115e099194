"""Checkpoints: states of a run on disk that no crash and no flipped bit can spoil."""

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from natgrad.errors import CheckpointError, InputError
from natgrad.train import _manifest as manifests
from natgrad.train._lock import locked
from natgrad.train._snapshot import Checkpoint, described
from natgrad.train._storage import (
    as_tree,
    by_itself,
    first_whole,
    orbax,
    quiet,
    reason,
    said_of_damage,
    steps_in,
)


# Bytes that a checkpoint takes beside its arrays.
MARGIN = 2**16


@runtime_checkable
class Checkpoints(Protocol):
    """Where a run leaves its state, to be taken up from there."""

    def save(
        self, step: int, state: Any, config: dict[str, Any], score: float | None = None
    ) -> None:
        """Saves the state of a step, any tree of arrays and numbers, and returns.

        What went wrong with one save is raised by the next call.
        """
        ...

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None if nothing was ever saved."""
        ...

    def close(self) -> None:
        """Ends the saves under way."""
        ...


class OrbaxCheckpoints:
    """Checkpoints in a folder, written by Orbax in the background.

    A checkpoint is a folder named after its step. Beside the files of Orbax it holds
    a manifest, with the configuration and the SHA-256 of all there is. It is written
    elsewhere, and moved to its name when it is complete and on the disk. The `keep`
    newest stay, and the one with the highest score. One process at a time may use the
    folder.
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 3) -> None:
        if keep < 1:
            raise InputError(f"keep is {keep}; at least 1 checkpoint must be kept")
        orbax()
        self._folder = Path(folder).absolute()
        self._keep = keep
        self._drafts = self._folder / "unfinished"
        self._manager: Any = None
        self._pending: tuple[int, Future[None]] | None = None
        with contextlib.ExitStack() as undo:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = undo.enter_context(locked(self._folder / "lock"))
                self._start_afresh()
                self._scores = dict(self._readable())
            except CheckpointError:
                raise
            except OSError as error:
                raise CheckpointError(
                    f"{self._folder} cannot hold checkpoints: {reason(error)}"
                ) from error
            undo.pop_all()
        # Orbax runs in a thread of its own: a save then blocks for a copy only, and a
        # notebook's event loop, which is in the main thread, is not touched.
        self._worker = ThreadPoolExecutor(1, "natgrad-checkpoint")

    def __enter__(self) -> "OrbaxCheckpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(
        self, step: int, state: Any, config: dict[str, Any], score: float | None = None
    ) -> None:
        """Copies the state and writes it in the background.

        If the save before is still being written, it is waited for. A step that is
        already there is not written again, and none that is earlier than the newest is
        taken: two runs would be mixed.
        """
        self._settle()
        newest = max(self._scores, default=-1)
        if step < 0:
            raise InputError(f"step is {step}; steps count from 0")
        if step == newest:
            return
        if step < newest:
            raise CheckpointError(
                f"{self._folder} holds a checkpoint of step {newest}, and step {step} "
                "cannot follow it: resume from there, or use another folder"
            )
        saved = described(state)
        leaves = jax.tree.leaves(state)
        # A copy, since the next step may be computed in the memory of this state.
        values = [np.array(leaves[place]) for place in saved]
        manifest = {
            "format": manifests.FORMAT,
            "step": step,
            "score": None if score is None else float(score),
            "config": config,
            "leaves": list(saved.values()),
        }
        try:
            encoded = json.dumps(manifest)
        except (TypeError, ValueError) as error:
            raise InputError(f"config cannot be written as JSON: {error}") from error
        job = self._worker.submit(self._write, json.loads(encoded), values)
        self._pending = (step, job)

    def latest(self) -> Checkpoint | None:
        self._settle()
        return self._first_whole(sorted(steps_in(self._folder), reverse=True))

    def best(self) -> Checkpoint | None:
        """The checkpoint with the highest score, or None if none has a score."""
        self._settle()
        scores = {step: _rank(score) for step, score in self._scores.items()}
        scored = [step for step in scores if scores[step] > -math.inf]
        order = sorted(scored, key=lambda step: (scores[step], step), reverse=True)
        return self._first_whole(order)

    def wait(self) -> None:
        """Waits for the save under way, and raises what went wrong with it."""
        if self._pending is None:
            return
        step, job = self._pending
        error = job.exception()
        self._pending = None
        if error is not None:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to "
                f"{self._folder}: {reason(error)}"
            ) from error

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._worker.shutdown()
            self._drop_manager()
            self._lock.close()

    def _settle(self) -> None:
        if self._lock.closed:
            raise CheckpointError(f"{self._folder} was closed; open it again")
        self.wait()

    def _write(self, manifest: dict[str, Any], values: list[np.ndarray]) -> None:
        ocp = orbax()
        step = manifest["step"]
        draft = self._drafts / str(step)
        needed = sum(value.nbytes for value in values)
        free = shutil.disk_usage(self._folder).free
        # Orbax would find out too, but half-way, and with a traceback for each array.
        if needed + MARGIN > free:
            left = f"it needs {needed + MARGIN:,} bytes, and {free:,} are free"
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {left}")
        try:
            with quiet():
                if self._manager is None:
                    self._start_afresh()
                    # Which steps stay is decided here, by their manifests: Orbax may
                    # count a step that it failed to finish.
                    options = ocp.CheckpointManagerOptions(
                        enable_async_checkpointing=False,
                        save_root_metadata=False,
                        create=False,
                        multiprocessing_options=by_itself(ocp),
                    )
                    self._manager = ocp.CheckpointManager(self._drafts, options=options)
                stored = ocp.args.StandardSave(as_tree(step, values))
                if not self._manager.save(step, args=stored, force=True):
                    raise CheckpointError("Orbax declined to save it")
            manifest |= {
                "content": manifests.content_digest(values),
                "files": manifests.file_digests(draft),
            }
            manifests.write(draft, manifest)
            for path in [*draft.rglob("*"), draft]:
                manifests.flush(path)
            self._move_away(step)
            draft.rename(self._folder / str(step))
            manifests.flush(self._folder)
        except BaseException:
            self._drop_manager()
            with contextlib.suppress(OSError):
                self._start_afresh()
            raise
        self._scores[step] = manifest["score"]
        self._prune()

    def _prune(self) -> None:
        """Deletes what is neither among the newest nor the best."""
        kept = set(sorted(self._scores)[-self._keep :])
        kept.add(max(self._scores, key=lambda s: (_rank(self._scores[s]), s)))
        for step in steps_in(self._folder):
            if step not in kept:
                self._move_away(step)
                self._scores.pop(step, None)

    def _move_away(self, step: int) -> None:
        """Deletes a checkpoint, of which no moment shows a part."""
        there, discarded = self._folder / str(step), self._drafts / f"{step}.discarded"
        if there.exists():
            there.rename(discarded)
            shutil.rmtree(discarded)

    def _first_whole(self, steps: Iterable[int]) -> Checkpoint | None:
        job = self._worker.submit(first_whole, self._folder, list(steps))
        found, damaged = job.result()
        for step in damaged:
            self._scores.pop(step, None)
        said_of_damage(self._folder, found, damaged)
        return found

    def _readable(self) -> Iterator[tuple[int, float | None]]:
        for step in steps_in(self._folder):
            with contextlib.suppress(manifests.Damage, OSError):
                yield step, manifests.read(self._folder / str(step))["score"]

    def _start_afresh(self) -> None:
        if self._drafts.exists():
            shutil.rmtree(self._drafts)
        self._drafts.mkdir()

    def _drop_manager(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            with contextlib.suppress(Exception), quiet():
                manager.close()


def _rank(score: float | None) -> float:
    return -math.inf if score is None or math.isnan(score) else score
