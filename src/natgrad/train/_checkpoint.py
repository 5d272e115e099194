"""Checkpoints: the states of a run, in a folder.

A checkpoint is one file, `<step>.natgrad`, of a `Saved`; its metadata are the
configuration. The container verifies its SHA-256, and a file is written whole or not
at all, so a crash or a flipped bit is never taken for a state.
"""

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import _codec as codec, _container as container
from natgrad._atomic import lock
from natgrad.errors import (
    CheckpointError,
    CheckpointWarning,
    CorruptFileError,
    InputError,
    warn,
)


ENDING = ".natgrad"
NUMBERS = (bool, int, float, complex)

MARGIN = 2**16
"""Bytes that a checkpoint takes in addition to its arrays."""


class Leaf(NamedTuple):
    """The path, type and shape of one leaf of a saved state."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    is_weak: bool

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Saved(NamedTuple):
    """What a file has of a state: its leaves, and the bytes of all of them."""

    step: int
    leaves: tuple[Leaf, ...]
    data: np.ndarray


FORMAT = codec.Format("natgrad.train.Checkpoint", "a checkpoint", "state", Saved)


class Checkpoint(NamedTuple):
    """A saved state, and the configuration it was saved with."""

    step: int
    config: dict[str, Any]
    leaves: tuple[Leaf, ...]
    values: list[np.ndarray]

    def restore(self, like: Any) -> Any:
        """The state, with the structure, the static fields and the devices of `like`.

        The values of `like` do not matter. Leaves that are neither arrays nor numbers,
        such as functions, are not saved: those of `like` are kept.
        """
        leaves, treedef = jax.tree.flatten(like)
        wanted = describe(like)
        if found := _differences(self.leaves, tuple(wanted.values())):
            more = [f"and {len(found) - 5} more"] if found[5:] else []
            listed = "; ".join(found[:5] + more)
            raise CheckpointError(
                f"the checkpoint of step {self.step} has a different state: {listed}"
            )
        for place, saved, value in zip(wanted, self.leaves, self.values, strict=True):
            leaves[place] = _placed(value, saved, leaves[place])
        return jax.tree.unflatten(treedef, leaves)


class FolderCheckpoints:
    """Checkpoints in a folder, written in the background.

    The `keep` newest stay. One process at a time may use the folder.
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 3) -> None:
        if keep < 1:
            raise InputError(f"keep is {keep}; at least 1 checkpoint must be kept")
        self._folder, self._keep = Path(folder).absolute(), keep
        self._damaged: set[int] = set()
        self._pending: tuple[int, Future[None]] | None = None
        with contextlib.ExitStack() as undo:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = undo.enter_context(lock(self._folder / "lock"))
                for draft in self._folder.glob(f".*{ENDING}.tmp"):  # of a killed run
                    draft.unlink()
            except CheckpointError:
                raise
            except OSError as error:
                raise CheckpointError(
                    f"{self._folder} cannot hold checkpoints: {_reason(error)}"
                ) from error
            undo.pop_all()
        self._worker = ThreadPoolExecutor(1, "natgrad-checkpoint")

    def __enter__(self) -> "FolderCheckpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, step: int, state: Any, config: dict[str, Any]) -> None:
        """Copies a state, any tree of arrays and numbers, and writes it.

        It first waits for the save before, and raises what failed there. A step that is
        already saved is not written again. A step before the newest is refused, because
        it would mix two runs.
        """
        self._settle()
        newest = max(self._valid(), default=-1)
        if step < 0:
            raise InputError(f"step is {step}; steps count from 0")
        if step == newest:
            return
        if step < newest:
            raise CheckpointError(
                f"{self._folder} has a checkpoint of step {newest}, and step {step} "
                "cannot follow it: resume from there, or use another folder"
            )
        saved, leaves = describe(state), jax.tree.leaves(state)
        flat = [np.ascontiguousarray(leaves[place]).reshape(-1) for place in saved]
        # A copy, since the next step may be computed in the memory of this state.
        data = np.concatenate([np.empty(0, "u1"), *(x.view("u1") for x in flat)])
        value = Saved(step, tuple(saved.values()), data)
        document, source = FORMAT.document(value, as_json(config))
        job = self._worker.submit(self._write, step, document, source.arrays)
        self._pending = (step, job)

    def latest(self) -> Checkpoint | None:
        """The newest valid checkpoint, or None if nothing was ever saved."""
        self._settle()
        found, damaged = first_valid(self._folder, steps_in(self._folder))
        self._damaged |= damaged.keys()
        if found is None and damaged:
            listed = "; ".join(f"step {step}: {why}" for step, why in damaged.items())
            raise CheckpointError(f"{self._folder} has no valid checkpoint: {listed}")
        for step, why in damaged.items():
            warn(
                f"the checkpoint of step {step} in {self._folder} is skipped, and that "
                f"of step {found.step if found else None} is used: {why}",
                CheckpointWarning,
            )
        return found

    def wait(self) -> None:
        """Waits for the save in progress, and raises what failed."""
        if self._pending is None:
            return
        (step, job), self._pending = self._pending, None
        error = job.exception()
        if error is not None:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to "
                f"{self._folder}: {_reason(error.__cause__ or error)}"
            ) from error

    def close(self) -> None:
        """Waits for the save in progress and releases the folder."""
        try:
            self.wait()
        finally:
            self._worker.shutdown()
            self._lock.close()

    def _settle(self) -> None:
        if self._lock.closed:
            raise CheckpointError(f"{self._folder} was closed; open it again")
        self.wait()

    def _valid(self) -> list[int]:
        """The steps that are not known to be damaged, the newest first."""
        return [s for s in steps_in(self._folder) if s not in self._damaged]

    def _write(self, step: int, document: Any, arrays: dict[str, np.ndarray]) -> None:
        needed = sum(array.nbytes for array in arrays.values()) + MARGIN
        free = shutil.disk_usage(self._folder).free
        if needed > free:  # a disk that is filled to the last byte harms others too
            left = f"it needs {needed:,} bytes, and {free:,} are free"
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {left}")
        container.write(_path(self._folder, step), document, arrays)
        self._damaged.discard(step)
        for step in {*steps_in(self._folder)} - {*self._valid()[: self._keep]}:
            _path(self._folder, step).unlink()


def steps_in(folder: Path) -> list[int]:
    """The steps that a folder has checkpoints of, valid or not, the newest first."""
    names = (path.stem for path in folder.iterdir() if path.suffix == ENDING)
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def first_valid(
    folder: Path, steps: Iterable[int]
) -> tuple[Checkpoint | None, dict[int, str]]:
    """The first valid checkpoint of some, and what is wrong with those before it."""
    damaged: dict[int, str] = {}
    for step in steps:
        try:
            return _read(folder, step), damaged
        except (OSError, ValueError, LookupError, TypeError) as error:
            damaged[step] = str(error)
    return None, damaged


def _path(folder: Path, step: int) -> Path:
    return folder / f"{step}{ENDING}"


def _read(folder: Path, step: int) -> Checkpoint:
    """A checkpoint; raises an error if it is not the one that was written."""
    document, arrays = container.unpack(_path(folder, step).read_bytes())
    saved = FORMAT.restored(document, arrays, {})
    if saved.step != step:
        raise CorruptFileError(f"it was saved as step {saved.step}")
    values, begin = [], 0
    for leaf in saved.leaves:
        dtype = jnp.dtype(leaf.dtype)
        end = begin + math.prod(leaf.shape) * dtype.itemsize
        data = saved.data[begin:end].tobytes()
        values.append(np.frombuffer(data, dtype).reshape(leaf.shape))
        begin = end
    return Checkpoint(step, document["metadata"], saved.leaves, values)


def describe(state: Any) -> dict[int, Leaf]:
    """The leaves that are saved, by their place among all leaves."""
    found: dict[int, Leaf] = {}
    for place, (path, leaf) in enumerate(jax.tree.leaves_with_path(state)):
        name = jax.tree_util.keystr(path) or "the state"
        if isinstance(leaf, NUMBERS):
            leaf = np.asarray(leaf)
        if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
            continue
        dtype = leaf.dtype
        if jnp.issubdtype(dtype, jax.dtypes.extended):
            raise InputError(f"{name} is a {dtype}; save its jax.random.key_data")
        if dtype.kind in "OSUMm" or not dtype.isnative:
            raise InputError(f"{name} has type {dtype}; a state holds numbers only")
        is_weak = bool(getattr(leaf, "weak_type", False))
        found[place] = Leaf(name, dtype.name, tuple(leaf.shape), is_weak)
    return found


def as_json(config: Any) -> Any:
    """A configuration as a file gives it back."""
    try:
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"config cannot be written as JSON: {error}") from error


def _differences(saved: Sequence[Leaf], wanted: Sequence[Leaf]) -> list[str]:
    ours, theirs = ({leaf.path: leaf for leaf in side} for side in (saved, wanted))
    kind = lambda leaf: str(leaf) if leaf else "missing"
    found = [
        f"{path} was {kind(ours.get(path))} and is {kind(theirs.get(path))}"
        for path in ours | theirs
        if kind(ours.get(path)) != kind(theirs.get(path))
    ]
    in_order = [leaf.path for leaf in saved] == [leaf.path for leaf in wanted]
    return found if found or in_order else ["its leaves have a different order"]


def _placed(value: np.ndarray, saved: Leaf, like: Any) -> Any:
    """The value as what `like` is: a number, a NumPy array, or one on its devices."""
    if isinstance(like, NUMBERS):
        return type(like)(value)
    if isinstance(like, np.ndarray | np.generic):
        return value[()] if isinstance(like, np.generic) else value.copy()
    sharding = like.sharding if getattr(like, "committed", True) else None
    placed = jax.device_put(value, sharding, may_alias=False)
    if saved.is_weak:
        # Weak types are part of what is compiled. Only what grew out of a Python number
        # has one.
        blank = jnp.full(saved.shape, value.dtype.type(0).item(), device=sharding)
        weak = blank.at[...].set(placed)
        placed = weak if weak.dtype == placed.dtype else placed
    return placed


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{lines[0][:300]} ({type(error).__name__})".strip()
