"""A folder that one run uses at a time, and a model replaced once the new one is whole.

A run that replaces a model works in a folder of its own, `replacement`, within that of
the model. When it has ended that folder is renamed to `finished`, which says that it is
complete, and its files are moved. Whatever a kill leaves of that, the next run does.
"""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from natgrad._atomic import lock, sync_folder, unlock
from natgrad._cli.folder import CHECKPOINT, HISTORY, MODEL, REPLACEMENT, RUN, SCAN
from natgrad.errors import CheckpointError, InputError
from natgrad.train._checkpoint import steps_in


FINISHED, LOCK = "finished", ".lock"


@contextlib.contextmanager
def in_use(out: Path) -> Iterator[None]:
    """Keeps other runs out of a folder, and completes what a killed one has left."""
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = lock(out / LOCK)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; wait until it ends, or use another --out"
        ) from error
    except OSError as error:
        raise InputError(f"{out} cannot hold a model: {error.strerror}") from error
    try:
        complete(out)
        tidy(out)
        yield
    finally:
        unlock(held, out / LOCK)
        for path in made:  # of a run that left nothing
            with contextlib.suppress(OSError):
                path.rmdir()


def working(out: Path) -> Path:
    """Where the run of a folder is: in the replacement, if that was interrupted."""
    place = out / REPLACEMENT
    is_begun = (place / RUN).is_file() and (place / CHECKPOINT).is_dir()
    return place if is_begun else out


def is_taken(out: Path) -> bool:
    """Whether a folder has what a new run would overwrite: a model or a checkpoint."""
    checkpoint = out / CHECKPOINT
    has_steps = checkpoint.is_dir() and bool(steps_in(checkpoint))
    has_run = checkpoint.is_dir() and (out / RUN).is_file()
    return (out / MODEL).exists() or has_steps or has_run


def finish(place: Path, out: Path) -> None:
    """Makes a run that has ended the one of its folder."""
    if place == out:
        drop(out / CHECKPOINT)
        (out / SCAN).unlink(missing_ok=True)
        return
    # This one rename decides; all that follows can be done again.
    place.rename(out / FINISHED)
    sync_folder(out)
    complete(out)


def complete(out: Path) -> None:
    """Moves a finished replacement to its place, however far that has come."""
    finished = out / FINISHED
    if not finished.is_dir():
        return
    drop(out / CHECKPOINT)
    (out / SCAN).unlink(missing_ok=True)
    # The model last: when it is new, so is all that describes it.
    for name in (RUN, HISTORY, MODEL):
        if (finished / name).exists():
            (finished / name).replace(out / name)
    sync_folder(out)
    drop(finished)


def tidy(out: Path) -> None:
    """Removes what runs that were killed have left half written or half deleted."""
    for name in (CHECKPOINT, REPLACEMENT, FINISHED):
        shutil.rmtree(out / f".{name}.dropped", ignore_errors=True)
    for name in (MODEL, RUN, HISTORY, SCAN):
        for draft in (*out.glob(f".{name}*.tmp"), out / f"{name}.tmp"):
            draft.unlink(missing_ok=True)


def drop(folder: Path) -> None:
    """Removes a folder, of which no moment shows a part under its name."""
    aside = folder.with_name(f".{folder.name}.dropped")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
