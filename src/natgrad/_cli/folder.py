"""The folder of a run: one run at a time, and one complete model at any moment.

A run that replaces a model works in a folder of its own, `replacement`, within that of
the model. When it has ended that folder is renamed to `finished`, which marks it as
complete, and its files are moved. The next run completes what a killed one left. Only
process 0 writes here, and what it sees holds for all.
"""

import contextlib
import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from natgrad import _config as config, distributed
from natgrad._atomic import lock, replacing, sync_folder, unlock
from natgrad._cli.common import join, say
from natgrad._config import Run
from natgrad.data._prepare import Prepared
from natgrad.errors import CheckpointError, InputError, Terminated
from natgrad.train._checkpoint import steps_in


MODEL, RUN, HISTORY = "model.natgrad", "run.toml", "history.jsonl"
CHECKPOINT, SCAN = "checkpoint", "scan.npz"
REPLACEMENT = "replacement"
"""Where a run works whose model is to take the place of the one in the folder."""

FINISHED, LOCK = "finished", ".lock"
NOTHING, BEGUN, ENDED = "nothing", "begun", "ended"


@contextlib.contextmanager
def opened(out: Path, is_new: bool = True) -> Iterator[Path]:
    """Joins the processes of a run and keeps other runs out; where the run works."""
    is_first = join()
    if is_first and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out should be a folder")
    if is_first and not is_new and not out.is_dir():
        raise InputError(f"{out} has no {RUN}; it should be what train --out made")
    with in_use(out) if is_first else contextlib.nullcontext():
        yield current(out)


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


# What a folder has


def current(out: Path) -> Path:
    """Where the run of a folder works, as the first process sees it."""
    return out / distributed.place().first(str(working(out).relative_to(out)))


def working(out: Path) -> Path:
    """Where the run of a folder is: in the replacement, if that was interrupted."""
    place = out / REPLACEMENT
    return place if state(place) == BEGUN else out


def state(place: Path) -> str:
    """What a folder has of a run."""
    if not (place / RUN).is_file():
        return NOTHING
    if (place / CHECKPOINT).is_dir():
        return BEGUN
    return ENDED if (place / MODEL).is_file() else NOTHING


def is_resumable(out: Path) -> bool:
    """Whether a folder has a run that was interrupted."""
    return any((place / CHECKPOINT).is_dir() for place in (out, out / REPLACEMENT))


def is_taken(out: Path) -> bool:
    """Whether a folder has what a new run would overwrite: a model or a checkpoint."""
    checkpoint = out / CHECKPOINT
    has_steps = checkpoint.is_dir() and bool(steps_in(checkpoint))
    return has_steps or state(out) == BEGUN or (out / MODEL).exists()


def check_free(out: Path) -> None:
    """Raises if a new run would overwrite something."""
    if distributed.place().process:
        return
    if state(working(out)) == BEGUN:
        raise InputError(
            f"{out} has a run that was interrupted: natgrad resume {out} continues it, "
            "--force trains and then replaces it"
        )
    if (out / MODEL).exists():
        raise InputError(
            f"{out} has a model already; --force replaces it, another --out keeps it"
        )
    if is_taken(out):
        raise InputError(
            f"{out / CHECKPOINT} has checkpoints, but there is no {RUN} of their run; "
            "--force trains and then replaces them, another --out keeps them"
        )


def read_run(place: Path) -> Run:
    """The run of a folder, as the first process sees it."""
    text = ""
    if distributed.place().process == 0:
        if not (place / RUN).is_file():
            raise InputError(
                f"{place} has no {RUN}; it should be what train --out made"
            )
        text = config.dumps(config.read(place / RUN))
    return config.loads(distributed.place().first(text))


def read_scan(place: Path) -> tuple[bytes, ...]:
    """What a pass over the data found when the run began, if all processes see it."""
    try:
        with np.load(place / SCAN) as file:
            found = tuple(file[name].tobytes() for name in file.files)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        found = ()
    # Another host may have an old file at the same path.
    digests = distributed.exchange(hashlib.sha256(b"".join(found)).digest())
    return found if len(set(digests)) == 1 else ()


# A run that begins, continues, and ends


def begin(prepared: Prepared, out: Path) -> None:
    """Readies a folder for a run.

    An interrupted run continues if it is the same to the last choice. It ends where a
    new one would, and sooner.
    """
    if distributed.place().process:
        return
    place, text = working(out), config.dumps(prepared.run)
    with contextlib.suppress(InputError):
        if state(place) == BEGUN and config.dumps(config.read(place / RUN)) == text:
            say_from_where(place)
            return
    place = out / REPLACEMENT if is_taken(out) else out
    try:
        drop(out / REPLACEMENT)
        place.mkdir(parents=True, exist_ok=True)
        drop(place / CHECKPOINT)
        for name in (RUN, HISTORY):
            (place / name).unlink(missing_ok=True)
        if prepared.scan:
            parts = [np.frombuffer(part, np.uint8) for part in prepared.scan]
            with replacing(place / SCAN) as draft, draft.open("wb") as file:
                np.savez(file, *parts)
        with replacing(place / RUN) as draft:
            draft.write_text(text, encoding="utf-8")
        # From now on the folder is of a run that has not ended, whatever happens.
        (place / CHECKPOINT).mkdir()
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise InputError(f"{place} cannot hold a model: {error.strerror}") from error


def continued(place: Path, out: Path) -> None:
    """Prints where a run continues, or raises if it cannot."""
    if distributed.place().process:
        return
    if not (place / CHECKPOINT).is_dir():
        done = "its run has ended" if (place / MODEL).is_file() else "none was made"
        raise InputError(
            f"{out} has no checkpoint to continue from: {done}; to train anew: natgrad "
            f"train --config {out / RUN} --out {out} --force"
        )
    say_from_where(place)


def say_from_where(place: Path) -> None:
    steps = steps_in(place / CHECKPOINT)
    say(f"continuing from step {max(steps):,}" if steps else "beginning again")


@contextlib.contextmanager
def explained(place: Path, out: Path, is_kept: bool) -> Iterator[None]:
    """Prints how to continue a run that fails or is ended inside.

    If it has saved no step, its empty checkpoint is removed, so that the next command
    needs no `--force`. It `is_kept` after a pass over a data set, which may have taken
    hours, and among several processes, of which only this one may have failed.
    """
    try:
        yield
    except (Terminated, KeyboardInterrupt) as error:
        what = "terminated" if isinstance(error, Terminated) else "interrupted"
        say(f"{what}; continue with: natgrad resume {out}")
        raise
    except Exception as error:
        checkpoint = place / CHECKPOINT
        if isinstance(error, CheckpointError):
            if "could not be written" in str(error):
                raise CheckpointError(
                    f"{error}; make room, and continue with: natgrad resume {out}"
                ) from error
        elif checkpoint.is_dir() and not is_kept and not distributed.is_started():
            if steps_in(checkpoint):
                say(f"to continue from the last checkpoint: natgrad resume {out}")
            else:
                drop(checkpoint if place == out else place)
        raise


def finish(place: Path, out: Path) -> None:
    """Makes a run that has ended the one of its folder."""
    if place != out:
        # This one rename decides; all that follows can be done again.
        place.rename(out / FINISHED)
        sync_folder(out)
        complete(out)
    drop(out / CHECKPOINT)
    (out / SCAN).unlink(missing_ok=True)


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
