"""Training from a table, to a folder that can be used, repeated and resumed."""

import contextlib
import dataclasses
import json
import shutil
from importlib import util
from pathlib import Path
from typing import Any

from natgrad import distributed, runs
from natgrad.cli.common import give, join, say
from natgrad.cli.folder import (
    CHECKPOINT,
    HISTORY,
    MODEL,
    RUN,
    absolute,
    located,
)
from natgrad.cli.preparing import Prepared, prepare_table
from natgrad.cli.streaming import SCAN, prepare_lake
from natgrad.data import tables
from natgrad.data.lake import is_lake
from natgrad.errors import CheckpointError, InputError
from natgrad.runs import Run
from natgrad.train import manifest
from natgrad.train.storage import steps_in


CHOSEN = ("likelihood", "batch_size")
"""What "auto" leaves open until the data have been looked at."""

INTERRUPTED = 130
NOTHING, BEGUN, ENDED = "nothing", "begun", "ended"


def train(run: Run, out: Path, is_forced: bool, is_resumed: bool, is_json: bool) -> int:
    """Trains a model into a folder, and gives the code to exit with."""
    is_first = join()
    # Of several processes the first decides, since only it writes to the folder.
    found = distributed.exchange(_found(out).encode())[0].decode()
    if is_resumed and found != NOTHING:
        _check_same(run, _run_of(out), out)
    if is_resumed and found == ENDED:
        say(f"{out} has a model, and its run has ended")
        return 0
    if is_resumed and found == BEGUN:
        return _go_on(out, is_json)
    if is_first:
        _check_free(out, is_forced)
    prepared = prepare(run)
    if run.sha256 not in (None, prepared.run.sha256):
        say(f"{run.data} has changed since the run was written, by its SHA-256")
    if is_first:
        _begin(out, prepared)
    return _fit(prepared, out, is_json, is_resumed=False)


def resume(folder: Path, is_json: bool) -> int:
    """Goes on with a run that was interrupted, from its last checkpoint."""
    join()
    return _go_on(folder, is_json)


def _go_on(folder: Path, is_json: bool) -> int:
    run, is_first = _run_of(folder), distributed.place().process == 0
    if is_first and not (folder / CHECKPOINT).is_dir():
        done = "its run has ended" if (folder / MODEL).is_file() else "none was made"
        raise InputError(
            f"{folder} has no checkpoint to go on from: {done}; to train anew: natgrad "
            f"train --config {folder / RUN} --out {folder} --force"
        )
    if is_first:
        steps = steps_in(folder / CHECKPOINT)
        say(f"going on from step {max(steps):,}" if steps else "beginning again")
    prepared = prepare(run, folder)
    if run.sha256 not in (None, prepared.run.sha256):
        raise InputError(
            f"{run.data} is not what it was when the run began, by its SHA-256; put it "
            "back, or train anew"
        )
    return _fit(prepared, folder, is_json, is_resumed=True)


def _run_of(folder: Path) -> Run:
    """The run of a folder, as the first process sees it."""
    text = ""
    if distributed.place().process == 0:
        if not (folder / RUN).is_file():
            raise InputError(
                f"{folder} has no {RUN}; it should be what train --out made"
            )
        text = runs.dumps(runs.read(folder / RUN))
    return runs.loads(distributed.exchange(text.encode())[0].decode())


def _check_same(given: Run, begun: Run, folder: Path) -> None:
    """Raises if what is to be resumed is not what was asked for."""
    given = dataclasses.replace(given, data=absolute(located(given.data)), sha256=None)
    is_open = lambda name, value: value is None or (name in CHOSEN and value == "auto")
    for name, value in dataclasses.asdict(given).items():
        if not is_open(name, value) and value != getattr(begun, name):
            raise InputError(
                f"{folder} has a run with {name} {getattr(begun, name)!r}, and not "
                f"{value!r}; to go on with it: natgrad resume {folder}; to begin anew "
                "use --force without --resume, or another --out"
            )


def _found(out: Path) -> str:
    """What a folder has of a run."""
    if not (out / RUN).is_file():
        return NOTHING
    if (out / CHECKPOINT).is_dir():
        return BEGUN
    return ENDED if (out / MODEL).is_file() else NOTHING


def _drop(folder: Path) -> None:
    """Removes a folder, of which no moment shows a part under its name."""
    aside = folder.with_name(f".{folder.name}.dropped")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _begin(out: Path, prepared: Prepared) -> None:
    """Makes a folder that of a run which has begun."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        _drop(out / CHECKPOINT)
        for name in (MODEL, RUN, HISTORY):
            (out / name).unlink(missing_ok=True)
        prepared.keep(out)
        with tables.replacing(out / RUN) as draft:
            draft.write_text(runs.dumps(prepared.run), encoding="utf-8")
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise InputError(f"{out} cannot hold a model: {error.strerror}") from error


def prepare(run: Run, folder: Path | None = None) -> Prepared:
    """Looks at the data of a run, and makes the choices that were left open.

    `folder` is that of a run which has begun.
    """
    if is_lake(located(run.data)):
        return prepare_lake(run, folder)
    return prepare_table(run)


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
    run, schema = prepared.run, prepared.schema
    is_first = distributed.place().process == 0
    estimator = make_estimator(run)
    if is_resumed:
        # Found out once; the second time it might be another, and would not fit.
        found = json.dumps(_chosen(out / CHECKPOINT, run) if is_first else {})
        found = json.loads(distributed.exchange(found.encode())[0])
        estimator.set_params(**found)
    options: dict[str, Any] = {"log": out / HISTORY}
    if util.find_spec("orbax") is not None:
        # From now on the folder is of a run that has not ended, whatever happens.
        if is_first:
            (out / CHECKPOINT).mkdir(exist_ok=True)
        options |= {"checkpoint": out / CHECKPOINT, "resume": True}
    else:
        say('no checkpoints, as they need: pip install "natgrad[checkpoint]"')
    inputs = tables.counted(len(schema.features), "input")
    say(f"{prepared.rows:,} rows of {inputs}; Ctrl-C ends early and keeps the model")
    try:
        prepared.learn(estimator, **options)
        estimator.n_inducing = run.inducing
        if run.likelihood == "auto":
            estimator.likelihood = "auto"
            run = dataclasses.replace(run, likelihood=_noise_of(estimator))
            prepared = prepared._replace(run=run)
        if is_first:
            estimator.save(out / MODEL, metadata=_beside(prepared))
        distributed.meet()  # none ends before the model is there
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
    except Exception:
        # Of the data, most likely: to go on would end in it again. But a file of a lake
        # can be put back, and of several processes this one may be to blame alone.
        if not prepared.is_lake and not distributed.is_started():
            _drop(out / CHECKPOINT)
        raise
    is_interrupted = estimator.history_.reason == "interrupted"
    if is_first and not is_interrupted:
        _drop(out / CHECKPOINT)
        (out / SCAN).unlink(missing_ok=True)
    if not is_first:
        return INTERRUPTED if is_interrupted else 0
    give(_described(estimator, run, out, prepared.rows), is_json, str(estimator))
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
        "rows": prepared.rows,
    }


def _noise_of(estimator: Any) -> str:
    """The name of the noise that "auto" has chosen."""
    from natgrad.sklearn.targets import name_of

    return name_of(estimator.model_.likelihood)


def _chosen(checkpoint: Path, run: Run) -> dict[str, Any]:
    """What the run had chosen by its newest checkpoint, if that can be told."""
    steps = steps_in(checkpoint)
    for step in sorted(steps, reverse=True):
        with contextlib.suppress(manifest.Damage, OSError, LookupError, ValueError):
            leaves = manifest.read(checkpoint / str(step))["leaves"]
            shapes = {name: shape for name, _, shape, _ in leaves}
            chosen: dict[str, Any] = {"n_inducing": int(shapes[".params.inducing"][0])}
            if run.likelihood == "auto":
                from natgrad.sklearn.targets import name_with

                of = ".params.likelihood."
                own = [name.removeprefix(of) for name in shapes if name.startswith(of)]
                chosen["likelihood"] = name_with(own)
            return chosen
    return {}


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
    if (out / CHECKPOINT).is_dir() and (out / RUN).is_file():
        raise InputError(
            f"{out} has a run that was interrupted: natgrad resume {out} goes on, "
            "--force begins anew"
        )
    if (out / MODEL).exists():
        raise InputError(
            f"{out} has a model already; --force replaces it, another --out keeps it"
        )
