"""One checkpoint on disk: how Orbax writes it, and how it is read back whole."""

import contextlib
import logging
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad.errors import CheckpointError, CheckpointWarning
from natgrad.train import _manifest as manifests
from natgrad.train._snapshot import Checkpoint, Leaf


def steps_in(folder: Path) -> list[int]:
    """The steps of which a folder has checkpoints, whole or not."""
    names = (path.name for path in folder.iterdir() if path.is_dir())
    return [int(name) for name in names if name.isdecimal()]


def first_whole(
    folder: Path, steps: Iterable[int]
) -> tuple[Checkpoint | None, dict[int, str]]:
    """The first of some checkpoints that is whole, and what is wrong before it."""
    damaged: dict[int, str] = {}
    for step in steps:
        found = _read(folder / str(step))
        if isinstance(found, Checkpoint):
            return found, damaged
        damaged[step] = found
    return None, damaged


def said_of_damage(
    folder: Path, found: Checkpoint | None, damaged: dict[int, str]
) -> None:
    """Says which checkpoints were passed over, or that none can be read."""
    if found is None and damaged:
        listed = "; ".join(f"step {step}: {why}" for step, why in damaged.items())
        raise CheckpointError(f"{folder} has no checkpoint that can be read: {listed}")
    for step, damage in damaged.items():
        warnings.warn(
            f"the checkpoint of step {step} in {folder} is passed over for that of "
            f"step {found.step if found else None}: {damage}",
            CheckpointWarning,
            stacklevel=4,
        )


def _read(folder: Path) -> Checkpoint | str:
    """A checkpoint, or what is wrong with it."""
    ocp = orbax()
    try:
        manifest = manifests.read(folder)
        # Nothing that differs from what was written may reach Orbax: it would be taken
        # for numbers, or worse.
        manifests.compare(manifest["files"], manifests.file_digests(folder))
        leaves = [
            Leaf(path, dtype, tuple(shape), is_weak)
            for path, dtype, shape, is_weak in manifest["leaves"]
        ]
        empty = [np.empty(leaf.shape, jnp.dtype(leaf.dtype)) for leaf in leaves]
        like = ocp.args.StandardRestore(as_tree(manifest["step"], empty))
        with quiet():
            alone = by_itself(ocp)
            handler = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
            reader = ocp.Checkpointer(handler, multiprocessing_options=alone)
            with contextlib.closing(reader):
                tree = reader.restore(folder / "default", args=like)
        stored = tree["leaves"]
        values = [stored.get(_name(place), x) for place, x in enumerate(empty)]
        if manifests.content_digest(values) != manifest["content"]:
            raise manifests.Damage("its arrays are not those that were saved")
    except manifests.Damage as damage:
        return str(damage)
    except Exception as error:
        return f"it cannot be read: {reason(error)}"
    step, config, score = (manifest[key] for key in ("step", "config", "score"))
    return Checkpoint(step, config, score, leaves, values)


def by_itself(ocp: Any) -> Any:
    """Has Orbax wait for no other process: the one that is first writes for all."""
    process = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=process,
        active_processes={process},
        barrier_sync_key_prefix=f"natgrad{process}",
    )


def as_tree(step: int, values: list[np.ndarray]) -> dict[str, Any]:
    """What Orbax stores, which takes neither an empty tree nor an empty array."""
    leaves = {_name(place): x for place, x in enumerate(values) if x.size}
    return {"step": np.asarray(step), "leaves": leaves}


def _name(place: int) -> str:
    return f"{place:05d}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the log messages of Orbax, and no others."""

    # Errors too: Orbax also raises them. If somebody asked for the logger before absl
    # was imported, the record does not name Orbax's file, so look at the call stack.
    def is_wanted(record: logging.LogRecord) -> bool:
        modules = (
            str(frame.f_globals.get("__name__"))
            for frame, _ in traceback.walk_stack(None)
        )
        return not any(module.startswith("orbax.") for module in modules)

    logger = logging.getLogger("absl")
    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)


def reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{lines[0][:300]} ({type(error).__name__})".strip()


def orbax() -> Any:
    try:
        with quiet():
            import orbax.checkpoint
    except ImportError as error:
        raise ImportError(
            'checkpoints need orbax-checkpoint: pip install "natgrad[checkpoint]"'
        ) from error
    return orbax.checkpoint
