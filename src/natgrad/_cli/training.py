"""Training from a table, to a folder that can be used, repeated and resumed."""

import contextlib
import dataclasses
import json
from importlib import util
from pathlib import Path
from typing import Any

from natgrad import _config as runs, distributed
from natgrad._cli.common import give, join, say
from natgrad._cli.folder import (
    CHECKPOINT,
    HISTORY,
    MODEL,
    REPLACEMENT,
    RUN,
    absolute,
    located,
)
from natgrad._cli.preparing import Prepared, prepare_table
from natgrad._cli.replacing import drop, finish, in_use, is_taken, working
from natgrad._cli.saving import check_can_be_saved, table_metadata
from natgrad._cli.streaming import prepare_dataset
from natgrad._config import Run
from natgrad.data import _tables as tables
from natgrad.data._dataset import is_dataset
from natgrad.errors import CheckpointError, InputError
from natgrad.train import _manifest as manifest
from natgrad.train._storage import steps_in


CHOSEN = ("likelihood", "batch_size")
"""What "auto" leaves open until the data have been looked at."""

INTERRUPTED = 130
NOTHING, BEGUN, ENDED = "nothing", "begun", "ended"


def train(run: Run, out: Path, is_forced: bool, is_resumed: bool, is_json: bool) -> int:
    """Trains a model into a folder, and gives the code to exit with."""
    is_first = join()
    if is_first and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out should be a folder")
    # Of several processes the first decides, since only it writes to the folder.
    with in_use(out) if is_first else contextlib.nullcontext():
        place = _place(out)
        found = _agreed(_found(place))
        if is_resumed and found != NOTHING:
            _check_same(run, _run_of(place), out)
        if is_resumed and found == ENDED:
            say(f"{out} has a model, and its run has ended")
            return 0
        if is_resumed and found == BEGUN:
            return _continue(place, out, is_json)
        if is_first and not is_forced:
            _check_free(out)
        return _begin(run, place, out, is_json)


def resume(folder: Path, is_json: bool) -> int:
    """Continues a run that was interrupted, from its last checkpoint."""
    is_first = join()
    if is_first and not folder.is_dir():
        raise InputError(f"{folder} has no {RUN}; it should be what train --out made")
    with in_use(folder) if is_first else contextlib.nullcontext():
        return _continue(_place(folder), folder, is_json)


def _begin(run: Run, place: Path, out: Path, is_json: bool) -> int:
    """Begins a run; one that was interrupted is continued, if it is the same.

    It ends where a new one would, and sooner.
    """
    is_first = distributed.place().process == 0
    prepared = prepare(run)
    check_can_be_saved(make_estimator(prepared.run), prepared)
    if run.sha256 not in (None, prepared.run.sha256):
        say(f"{run.data} has changed since the run was written, by its SHA-256")
    is_same = _agreed("yes" if _is_begun(place, prepared.run) else "no") == "yes"
    if not is_same:
        place = out / _agreed(REPLACEMENT if is_taken(out) else "")
    if is_first and is_same:
        _say_from_where(place)
    elif is_first:
        _make(place, out, prepared)
    return _fit(prepared, place, out, is_json, is_resumed=is_same)


def _continue(place: Path, out: Path, is_json: bool) -> int:
    run, is_first = _run_of(place), distributed.place().process == 0
    if is_first and not (place / CHECKPOINT).is_dir():
        done = "its run has ended" if (place / MODEL).is_file() else "none was made"
        raise InputError(
            f"{out} has no checkpoint to continue from: {done}; to train anew: natgrad "
            f"train --config {out / RUN} --out {out} --force"
        )
    if is_first:
        _say_from_where(place)
    prepared = prepare(run, place)
    check_can_be_saved(make_estimator(prepared.run), prepared)
    if run.sha256 not in (None, prepared.run.sha256):
        raise InputError(
            f"{run.data} is not what it was when the run began, by its SHA-256; put it "
            "back, or train anew with --force"
        )
    return _fit(prepared, place, out, is_json, is_resumed=True)


def _agreed(word: str) -> str:
    """What the first process says, in all of them."""
    return distributed.exchange(word.encode())[0].decode()


def _place(out: Path) -> Path:
    """Where the run of a folder is, as the first process sees it."""
    return out / _agreed(str(working(out).relative_to(out)))


def _say_from_where(place: Path) -> None:
    steps = steps_in(place / CHECKPOINT)
    say(f"continuing from step {max(steps):,}" if steps else "beginning again")


def _run_of(folder: Path) -> Run:
    """The run of a folder, as the first process sees it."""
    text = ""
    if distributed.place().process == 0:
        if not (folder / RUN).is_file():
            raise InputError(
                f"{folder} has no {RUN}; it should be what train --out made"
            )
        text = runs.dumps(runs.read(folder / RUN))
    return runs.loads(_agreed(text))


def _is_begun(place: Path, run: Run) -> bool:
    """Whether a folder has this run, to the last choice, and it was interrupted."""
    if _found(place) != BEGUN:
        return False
    with contextlib.suppress(InputError):
        return runs.dumps(runs.read(place / RUN)) == runs.dumps(run)
    return False


def _check_same(given: Run, begun: Run, folder: Path) -> None:
    """Raises if what is to be resumed is not what was asked for."""
    given = dataclasses.replace(given, data=absolute(located(given.data)), sha256=None)
    is_open = lambda name, value: value is None or (name in CHOSEN and value == "auto")
    for name, value in dataclasses.asdict(given).items():
        if not is_open(name, value) and value != getattr(begun, name):
            raise InputError(
                f"{folder} has a run with {name} {getattr(begun, name)!r}, and not "
                f"{value!r}; to continue it: natgrad resume {folder}; to begin anew "
                "use --force without --resume, or another --out"
            )


def _found(place: Path) -> str:
    """What a folder has of a run."""
    if not (place / RUN).is_file():
        return NOTHING
    if (place / CHECKPOINT).is_dir():
        return BEGUN
    return ENDED if (place / MODEL).is_file() else NOTHING


def _make(place: Path, out: Path, prepared: Prepared) -> None:
    """Makes a folder that of a run which begins."""
    try:
        if place != out:
            drop(place)
        place.mkdir(parents=True, exist_ok=True)
        drop(place / CHECKPOINT)
        for name in (RUN, HISTORY):
            (place / name).unlink(missing_ok=True)
        prepared.keep(place)
        with tables.replacing(place / RUN) as draft:
            draft.write_text(runs.dumps(prepared.run), encoding="utf-8")
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise InputError(f"{place} cannot hold a model: {error.strerror}") from error


def prepare(run: Run, folder: Path | None = None) -> Prepared:
    """Looks at the data of a run, and makes the choices that were left open.

    `folder` is that of a run which has begun.
    """
    if is_dataset(located(run.data)):
        return prepare_dataset(run, folder)
    return prepare_table(run)


def make_estimator(run: Run) -> Any:
    """The estimator that learns a run."""
    from natgrad import sklearn

    options: dict[str, Any] = {
        "kernel": run.kernel,
        "n_inducing": run.num_inducing,
        "max_iter": run.steps,
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


def _fit(
    prepared: Prepared, place: Path, out: Path, is_json: bool, is_resumed: bool
) -> int:
    """Trains in a folder, which is that of the model or that of its replacement."""
    run, schema = prepared.run, prepared.schema
    is_first = distributed.place().process == 0
    estimator = make_estimator(run)
    if is_resumed:
        # Found out once; the second time it might be another, and would not fit.
        found = _agreed(
            json.dumps(_chosen(place / CHECKPOINT, run) if is_first else {})
        )
        estimator.set_params(**json.loads(found))
    options: dict[str, Any] = {"log": place / HISTORY}
    if util.find_spec("orbax") is not None:
        # From now on the folder is of a run that has not ended, whatever happens.
        if is_first:
            (place / CHECKPOINT).mkdir(exist_ok=True)
        options |= {"checkpoint": place / CHECKPOINT, "resume": True}
    else:
        say('no checkpoints, as they need: pip install "natgrad[checkpoint]"')
    inputs = tables.counted(len(schema.features), "input")
    say(f"{prepared.rows:,} rows of {inputs}; Ctrl-C ends early and keeps the model")
    if place != out:
        say(f"{out} keeps its old model until the new one is complete")
    try:
        prepared.learn(estimator, **options)
        estimator.n_inducing = run.num_inducing
        if run.likelihood == "auto":
            estimator.likelihood = "auto"
            run = dataclasses.replace(run, likelihood=_noise_of(estimator))
            prepared = prepared._replace(run=run)
        if is_first:
            estimator.save(place / MODEL, metadata=table_metadata(prepared))
        distributed.barrier()  # none ends before the model is there
    except SystemExit:
        say(f"terminated; continue with: natgrad resume {out}")
        raise
    except KeyboardInterrupt:
        say(f"interrupted; continue with: natgrad resume {out}")
        return INTERRUPTED
    except CheckpointError as error:
        if "could not be written" not in str(error):
            raise
        raise CheckpointError(
            f"{error}; make room, and continue with: natgrad resume {out}"
        ) from error
    except Exception:
        _say_how_to_continue(prepared, place, out)
        raise
    is_interrupted = estimator.history_.reason == "interrupted"
    if is_first and not is_interrupted:
        finish(place, out)
    if not is_first:
        return INTERRUPTED if is_interrupted else 0
    where = place if is_interrupted else out
    give(_described(estimator, run, where, prepared.rows), is_json, str(estimator))
    if is_interrupted:
        is_resumable = (place / CHECKPOINT).exists()
        more = f"; natgrad resume {out} continues it" if is_resumable else ""
        old = "" if place == out else f", and {out} keeps the old one"
        say(f"interrupted; {place} has the model so far{old}{more}")
        return INTERRUPTED
    say(f"saved in {out}. Next: natgrad evaluate {out} OTHER_DATA")
    return 0


def _say_how_to_continue(prepared: Prepared, place: Path, out: Path) -> None:
    """Prints how to continue a run that failed, if it has saved a step.

    If it has not, its empty checkpoint is removed, so that the next command needs no
    `--force`. A data set on disk keeps its checkpoint: the pass over it may have taken
    hours. So do several processes, of which only this one may have failed.
    """
    checkpoint = place / CHECKPOINT
    if prepared.is_dataset or distributed.is_started() or not checkpoint.is_dir():
        return
    if steps_in(checkpoint):
        say(f"the last checkpoint stays; to continue from it: natgrad resume {out}")
    else:
        drop(checkpoint if place == out else place)


def _noise_of(estimator: Any) -> str:
    """The name of the noise that "auto" has chosen."""
    from natgrad.sklearn._targets import name_of

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
                from natgrad.sklearn._targets import name_with

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
        "elbo_per_row": float(estimator.elbo_),
        "steps": int(estimator.n_iter_),
        "num_inducing": int(estimator.n_inducing_),
        "converged": bool(estimator.converged_),
        "message": str(estimator.message_),
        "refused": int(last.refused),
        "seconds": float(estimator.fit_seconds_),
    }


def _check_free(out: Path) -> None:
    """Raises if there is something that would be lost."""
    if working(out) != out or ((out / CHECKPOINT).is_dir() and (out / RUN).is_file()):
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
            f"{out / CHECKPOINT} has checkpoints, and no {RUN} says of which run; "
            "--force trains and then replaces them, another --out keeps them"
        )
