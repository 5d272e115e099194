"""Training from a table, to a folder that can be used, repeated and resumed."""

import contextlib
import dataclasses
import hashlib
import shutil
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad import runs
from natgrad.cli.common import give, say
from natgrad.cli.folder import (
    CHECKPOINT,
    HISTORY,
    MODEL,
    RUN,
    framed,
    located,
    refuse_nulls,
    said_of,
)
from natgrad.cli.targets import as_labels, guess, target_of
from natgrad.data import tables
from natgrad.data.tables import Schema
from natgrad.errors import CheckpointError, InputError
from natgrad.runs import Run
from natgrad.train import manifest


INTERRUPTED = 130
INDICES = {"", "Unnamed: 0", "__index_level_0__"}
"""What a column is called that is there because pandas wrote its index."""


class Prepared(NamedTuple):
    """A run whose every choice is made, and what it is trained on."""

    run: Run
    schema: Schema
    x: Any
    y: np.ndarray


def train(run: Run, out: Path, is_forced: bool, is_json: bool) -> int:
    """Trains a model into a folder, and gives the code to exit with."""
    _check_free(out, is_forced)
    prepared = prepare(run)
    if run.sha256 not in (None, prepared.run.sha256):
        say(f"{run.data} has changed since the run was written, by its SHA-256")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in (MODEL, RUN, HISTORY):
            (out / name).unlink(missing_ok=True)
        if (out / CHECKPOINT).exists():
            shutil.rmtree(out / CHECKPOINT)
        with tables.replacing(out / RUN) as draft:
            draft.write_text(runs.dumps(prepared.run), encoding="utf-8")
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise InputError(f"{out} cannot hold a model: {error.strerror}") from error
    return _fit(prepared, out, is_json, is_resumed=False)


def resume(folder: Path, is_json: bool) -> int:
    """Goes on with a run that was interrupted, from its last checkpoint."""
    if not (folder / RUN).is_file():
        raise InputError(f"{folder} has no {RUN}; it should be what train --out made")
    run = runs.read(folder / RUN)
    if not (folder / CHECKPOINT).is_dir():
        done = "its run has ended" if (folder / MODEL).is_file() else "none was made"
        raise InputError(
            f"{folder} has no checkpoint to go on from: {done}; to train anew: natgrad "
            f"train --config {folder / RUN} --out {folder} --force"
        )
    prepared = prepare(run)
    if run.sha256 not in (None, prepared.run.sha256):
        raise InputError(
            f"{run.data} is not what it was when the run began, by its SHA-256; put it "
            "back, or train anew"
        )
    return _fit(prepared, folder, is_json, is_resumed=True)


def prepare(run: Run) -> Prepared:
    """Reads the data of a run, and makes the choices that were left open."""
    path = located(run.data)
    columns = None if run.inputs is None else [*run.inputs, run.target]
    table = tables.read(path, columns)
    with said_of(path):
        tables.require(table.column_names, [run.target])
        inputs = run.inputs or _inputs(table.column_names, run.target)
        schema = tables.infer(table, inputs, run.nulls)
        encoded = schema.encode(table)
        y, is_there = target_of(table, run.target)
        if not is_there.all() and run.nulls != "drop":
            refuse_nulls(is_there, run.target)
        is_whole = encoded.is_whole & is_there
        if not is_whole.any():
            raise InputError("there is no row without a null")
        if not is_whole.all():
            say(f"{(~is_whole).sum():,} of {len(y):,} rows have a null: left out")
        y = y[is_whole]
        likelihood = run.likelihood
        if likelihood is None:
            likelihood, reason = guess(y)
            say(f"guessed --likelihood {likelihood}: {reason}")
        if likelihood in runs.REGRESSION and y.dtype == object:
            raise InputError(
                f"the target {run.target!r} is of strings, such as {y[0]!r}; the "
                f"likelihood {likelihood!r} is of numbers: leave it to be guessed, or "
                "take another column"
            )
        if likelihood in runs.ORDINAL and y.dtype == object:
            raise InputError(
                f"the target {run.target!r} is of strings, such as {y[0]!r}, whose "
                "order is not known; make numbers of it, as 1, 2, 3"
            )
        if likelihood not in runs.REGRESSION:
            y = as_labels(y)
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    run = dataclasses.replace(
        run,
        data=str(Path(path).absolute()),
        inputs=tuple(inputs),
        likelihood=likelihood,
        sha256=digest,
    )
    return Prepared(run, schema, framed(encoded.x[is_whole], schema), y)


def _inputs(names: list[str], target: str) -> list[str]:
    """All columns but the target and those that pandas adds."""
    for name in set(names) & INDICES:
        say(f"column {name!r} is left out: it looks like an index")
    return [name for name in names if name not in {target, *INDICES}]


def make_estimator(run: Run) -> Any:
    """The estimator that learns a run."""
    from natgrad import sklearn

    options: dict[str, Any] = {
        "kernel": run.kernel,
        "n_inducing": run.inducing,
        "max_iter": run.max_iter,
        "minutes": run.minutes,
        "batch_size": run.batch_size,
        "random_state": run.seed,
        "verbose": True,
    }
    if run.likelihood in runs.ORDINAL:
        return sklearn.GPOrdinal(**options)
    if run.likelihood in runs.CLASSIFICATION:
        return sklearn.GPClassifier(run.likelihood, **options)
    return sklearn.GPRegressor(run.likelihood, **options)


def _fit(prepared: Prepared, out: Path, is_json: bool, is_resumed: bool) -> int:
    run, schema, x, y = prepared
    estimator = make_estimator(run)
    if is_resumed and (found := _inducing_of(out / CHECKPOINT)):
        # Found out once; the second time it might be another, and would not fit.
        estimator.n_inducing = found
    options: dict[str, Any] = {"log": out / HISTORY}
    if util.find_spec("orbax") is not None:
        # From now on the folder is of a run that has not ended, whatever happens.
        (out / CHECKPOINT).mkdir(exist_ok=True)
        options |= {"checkpoint": out / CHECKPOINT, "resume": True}
    else:
        say('no checkpoints, as they need: pip install "natgrad[checkpoint]"')
    inputs = tables.counted(len(schema.features), "input")
    say(f"{len(y):,} rows of {inputs}; Ctrl-C ends early and keeps the model")
    try:
        estimator._fit(x, y, **options)
        estimator.n_inducing = run.inducing
        estimator.save(out / MODEL, metadata=_beside(prepared))
    except SystemExit:
        say(f"terminated; go on with: natgrad resume {out}")
        raise
    except KeyboardInterrupt:
        say(f"broken off; go on from the last checkpoint with: natgrad resume {out}")
        return INTERRUPTED
    except CheckpointError as error:
        if "could not be written" not in str(error):
            raise
        raise CheckpointError(
            f"{error}; make room, and go on with: natgrad resume {out}"
        ) from error
    except Exception:  # of the data, most likely: to go on would end in it again
        shutil.rmtree(out / CHECKPOINT, ignore_errors=True)
        raise
    is_interrupted = estimator.history_.reason == "interrupted"
    if not is_interrupted:
        shutil.rmtree(out / CHECKPOINT, ignore_errors=True)
    give(_described(estimator, run, out, len(y)), is_json, str(estimator))
    if is_interrupted:
        is_resumable = (out / CHECKPOINT).exists()
        more = f"; natgrad resume {out} goes on" if is_resumable else ""
        say(f"interrupted; {out} has the model so far{more}")
        return INTERRUPTED
    say(f"saved in {out}. Next: natgrad evaluate {out} OTHER_DATA")
    return 0


def _beside(prepared: Prepared) -> dict[str, Any]:
    """What is saved with a model, so that a table can be read as it was."""
    return {
        "schema": prepared.schema.to_dict(),
        "target": prepared.run.target,
        "likelihood": prepared.run.likelihood,
        "rows": len(prepared.y),
    }


def _inducing_of(checkpoint: Path) -> int | None:
    """How many inducing inputs the newest checkpoint has, if that can be told."""
    steps = [int(path.name) for path in checkpoint.iterdir() if path.name.isdecimal()]
    for step in sorted(steps, reverse=True):
        with contextlib.suppress(manifest.Damage, OSError, LookupError, ValueError):
            leaves = manifest.read(checkpoint / str(step))["leaves"]
            shapes = {name: shape for name, _, shape, _ in leaves}
            return int(shapes[".params.inducing"][0])
    return None


def _described(estimator: Any, run: Run, out: Path, rows: int) -> dict[str, Any]:
    last = estimator.history_[-1]
    return {
        "model": str(out / MODEL),
        "likelihood": run.likelihood,
        "rows": rows,
        "bound_per_row": float(estimator.elbo_),
        "iterations": int(estimator.n_iter_),
        "inducing": int(estimator.n_inducing_),
        "converged": bool(estimator.converged_),
        "message": str(estimator.message_),
        "refused": int(last.refused),
        "seconds": float(estimator.fit_seconds_),
    }


def _check_free(out: Path, is_forced: bool) -> None:
    """Raises if there is something that would be lost."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out should be a folder")
    if is_forced:
        return
    if (out / CHECKPOINT).is_dir():
        raise InputError(
            f"{out} has a run that was interrupted: natgrad resume {out} goes on, "
            "--force begins anew"
        )
    if (out / MODEL).exists():
        raise InputError(
            f"{out} has a model already; --force replaces it, another --out keeps it"
        )
