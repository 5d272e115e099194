"""The estimator of a prepared run, and whether a file can hold it."""

import json
from typing import Any

from natgrad import _container as container, sklearn
from natgrad._config import Run
from natgrad._registry import ESTIMATORS, LIKELIHOODS
from natgrad.data._prepare import Prepared
from natgrad.errors import InputError
from natgrad.sklearn._targets import make


REST = 400_000
"""Bytes that a file keeps for its history, parameters and model; columns and classes
take the others."""

NUMBER = 25
"""No number takes more bytes in JSON."""


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
    columns = prepared.schema.to_dict()["columns"]
    size, room = most_bytes(prepared), container.MAX_JSON - REST
    if size > room:
        sizes = {column["name"]: _size(column) for column in columns}
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"the model could not be saved: its columns and classes take {size:,} "
            f"bytes, and a file holds {room:,}; leave some out with --inputs, or "
            f"shorten their values; {largest!r} has {sizes[largest]:,}"
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
