"""Training from a table, to a folder that can be used, repeated and resumed."""

import contextlib
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

from natgrad import _container as container, distributed, sklearn
from natgrad._cli import folder
from natgrad._cli.common import print_result, say
from natgrad._cli.folder import CHECKPOINT, HISTORY, MODEL
from natgrad._cli.models import located
from natgrad._config import Run
from natgrad._registry import ESTIMATORS, LIKELIHOODS, name_of
from natgrad._text import counted
from natgrad.data._dataset import is_dataset
from natgrad.data._prepare import Prepared, Stream, prepare
from natgrad.errors import InputError
from natgrad.sklearn._targets import make
from natgrad.train import Options, stop_on_signals
from natgrad.train._checkpoint import first_valid, steps_in


CHOSEN = ("likelihood", "batch_size")
"""What "auto" leaves open until natgrad has read the data."""

INTERRUPTED = 130

REST = 400_000
"""Bytes that a file keeps for its history, parameters and model; columns and classes
take the others."""

NUMBER = 25
"""No number takes more bytes in JSON."""


def train(
    run: Run,
    out: Path,
    is_forced: bool,
    is_resumed: bool,
    is_json: bool,
    progress: bool = True,
) -> int:
    """Trains a model into a folder, and returns the exit code."""
    with folder.opened(out) as place:
        data = located(run.data)
        if "://" not in data:
            data = str(Path(data).absolute())
        run = dataclasses.replace(run, data=data)
        state = distributed.place().first(folder.state(place))
        if is_resumed and state != folder.NOTHING:
            _check_same(run, folder.read_run(place), out)
        if is_resumed and state == folder.ENDED:
            say(f"{out} has a model, and its run has ended")
            return 0
        if is_resumed and state == folder.BEGUN:
            return _continue(place, out, is_json, progress)
        if not is_forced:
            folder.check_free(out)
        prepared, estimator = _prepare(run, progress)
        if run.sha256 not in (None, prepared.run.sha256):
            say(f"{run.data} has changed since the run was written (SHA-256)")
        folder.begin(prepared, out)
        return _fit(estimator, prepared, out, is_json)


def resume(out: Path, is_json: bool, progress: bool = True) -> int:
    """Continues a run that was interrupted, from its last checkpoint."""
    with folder.opened(out, is_new=False) as place:
        return _continue(place, out, is_json, progress)


def _continue(place: Path, out: Path, is_json: bool, progress: bool) -> int:
    run = folder.read_run(place)
    folder.continued(place, out)
    prepared, estimator = _prepare(run, progress, folder.read_scan(place))
    if run.sha256 not in (None, prepared.run.sha256):
        raise InputError(
            f"{run.data} has changed since the run began (SHA-256); restore it, or "
            "train anew with --force"
        )
    return _fit(estimator, prepared, out, is_json)


def _prepare(
    run: Run, progress: bool, scan: tuple[bytes, ...] = ()
) -> tuple[Prepared, Any]:
    """The data and the estimator of a run; prints the choices that were made."""
    if is_dataset(run.data) and not scan:
        say(f"reading every row of {run.data} once")
    prepared = prepare(run, scan)
    for note in prepared.notes:
        say(note)
    estimator = make_estimator(prepared.run, progress)
    check_can_be_saved(prepared)
    return prepared, estimator


def _fit(estimator: Any, prepared: Prepared, out: Path, is_json: bool) -> int:
    """Fits an estimator in the folder of a model, or in that of its replacement."""
    place, is_first = folder.current(out), distributed.place().process == 0
    metadata = prepared.metadata()
    # A second search might choose otherwise, and the checkpoint would not fit.
    estimator.set_params(**_chosen(place / CHECKPOINT, metadata["likelihood"]))
    kept = Options(log=place / HISTORY, checkpoint=place / CHECKPOINT, resume=True)
    known = {"classes": prepared.classes, "schema": prepared.schema}
    inputs = counted(len(prepared.schema.features), "input")
    say(f"{prepared.rows:,} rows of {inputs}; Ctrl-C ends early and keeps the model")
    if place != out:
        say(f"{out} keeps its old model until the new one is complete")
    try:
        is_kept = isinstance(prepared.x, Stream)
        # Python lets only the main thread handle signals, and Ray trains in another.
        is_main = threading.current_thread() is threading.main_thread()
        stops = stop_on_signals() if is_main else contextlib.nullcontext()
        with folder.explained(place, out, is_kept), stops:
            estimator._fit(prepared.x, prepared.y, **known, **kept)
            estimator.n_inducing = prepared.run.num_inducing
            if metadata["likelihood"] == "auto":
                estimator.likelihood = "auto"
                found = estimator.model_.likelihood.observed
                metadata["likelihood"] = name_of(type(found).__name__)
            if is_first:
                estimator.save(place / MODEL, metadata=metadata)
            distributed.barrier()  # none ends before the model is there
    except KeyboardInterrupt:
        return INTERRUPTED
    is_interrupted = estimator.history_.reason == "interrupted"
    if is_first and not is_interrupted:
        folder.finish(place, out)
    where = place if is_interrupted else out
    print_result(_described(estimator, metadata, where), is_json, str(estimator))
    if is_interrupted:
        more = f"; natgrad resume {out} continues it"
        old = "" if place == out else f", and {out} keeps the old one"
        say(f"interrupted; {place} has the model so far{old}{more}")
        return INTERRUPTED
    say(f"saved in {out}. Next: natgrad evaluate {out} OTHER_DATA")
    return 0


def _check_same(given: Run, begun: Run, out: Path) -> None:
    """Raises if what is to be resumed is not what was asked for."""
    given = dataclasses.replace(given, sha256=None)
    is_open = lambda name, value: value is None or (name in CHOSEN and value == "auto")
    for name, value in dataclasses.asdict(given).items():
        if not is_open(name, value) and value != getattr(begun, name):
            raise InputError(
                f"{out} has a run with {name} {getattr(begun, name)!r}, and not "
                f"{value!r}; to continue it: natgrad resume {out}; to begin anew "
                "use --force without --resume, or another --out"
            )


def _chosen(checkpoint: Path, likelihood: str) -> dict[str, Any]:
    """What the run had chosen by its newest checkpoint, for all processes."""
    chosen: dict[str, Any] = {}
    if distributed.place().process == 0:
        found, _ = first_valid(checkpoint, steps_in(checkpoint))
        config = found.config["run"] if found else {}
        if "num_inducing" in config:
            chosen["n_inducing"] = int(config["num_inducing"])
            if likelihood == "auto":
                chosen["likelihood"] = name_of(config["likelihood"])
    return distributed.place().first(chosen)


def _described(estimator: Any, metadata: dict[str, Any], out: Path) -> dict[str, Any]:
    return {
        "model": str(out / MODEL),
        "likelihood": metadata["likelihood"],
        "rows": metadata["rows"],
        "elbo_per_row": float(estimator.elbo_),
        "steps": int(estimator.n_iter_),
        "num_inducing": int(estimator.n_inducing_),
        "converged": bool(estimator.converged_),
        "message": str(estimator.message_),
        "refused": int(estimator.history_[-1].refused),
        "seconds": float(estimator.fit_seconds_),
    }


# The estimator of a run, and whether a file can hold it


def make_estimator(run: Run, progress: bool = True) -> Any:
    """The estimator that a run describes; its settings have scikit-learn's names."""
    is_auto = run.likelihood == "auto"
    task = "regression" if is_auto else LIKELIHOODS[run.likelihood].task
    return getattr(sklearn, ESTIMATORS[task])(
        "auto" if task == "ordinal" else run.likelihood,
        kernel=run.kernel,
        columns=run.target_columns or None,
        n_inducing=run.num_inducing,
        max_iter=run.steps,
        minutes=run.minutes,
        batch_size=run.batch_size,
        random_state=run.seed,
        verbose=progress,
    )


def check_can_be_saved(prepared: Prepared) -> None:
    """Raises if the file of a model could not hold what will be known of it."""
    _check_arrays(prepared)
    size, room = most_bytes(prepared), container.MAX_JSON - REST
    if size > room:
        columns = prepared.schema.to_dict()["columns"]
        most, largest = max((_size(column), column["name"]) for column in columns)
        raise InputError(
            f"the model could not be saved: its columns and classes take {size:,} "
            f"bytes, and a file holds {room:,}; leave some out with --inputs, or "
            f"shorten their values; {largest!r} has {most:,}"
        )


def most_bytes(prepared: Prepared) -> int:
    """The most bytes that the columns and the classes take in the JSON of a file."""
    schema = prepared.schema
    classes = [] if prepared.classes is None else prepared.classes.tolist()
    # Names and classes are there twice, and each feature has a mean and a scale.
    texts = [schema.to_dict(), schema.names, classes, classes]
    return sum(map(_size, texts)) + 2 * NUMBER * len(schema.features)


def _check_arrays(prepared: Prepared) -> None:
    """Raises if the posterior alone is more than a file may have that is read."""
    run = prepared.run
    if run.num_inducing == "auto":  # which is a few hundred
        return
    classes = 2 if prepared.classes is None else len(prepared.classes)
    name = "gaussian" if run.likelihood in ("auto", "ordinal") else run.likelihood
    latents = make(name, classes).latents or 1
    inducing = min(int(run.num_inducing), prepared.rows)
    size = 8 * latents * inducing**2
    if size > container.MAX_BYTES:
        raise InputError(
            f"the model would be a file of {size:,} bytes or more, and at most "
            f"{container.MAX_BYTES:,} are read; use a --num-inducing below "
            f"{inducing:,}"
        )


def _size(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())
