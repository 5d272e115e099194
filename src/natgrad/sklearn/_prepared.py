"""The estimator of a prepared run, and whether a file can hold what it will know."""

import json
from typing import Any

import numpy as np

from natgrad import _container as container, sklearn
from natgrad._config import Run
from natgrad._registry import ESTIMATORS, LIKELIHOODS
from natgrad.data._prepare import Prepared
from natgrad.errors import InputError
from natgrad.sklearn import _fields as fields, _files as files
from natgrad.train._history import History, Record


LONGEST = -1.2345678901234567e-300
"""No number takes more characters in JSON."""

REST = 2**16
"""Bytes for what is not known beforehand: the classes of the model, and a message."""


def make_estimator(run: Run, progress: bool = True) -> Any:
    """The estimator that a run describes; its settings have scikit-learn's names."""
    is_auto = run.likelihood == "auto"
    task = "regression" if is_auto else LIKELIHOODS[run.likelihood].task
    return getattr(sklearn, ESTIMATORS[task])(
        "auto" if task == "ordinal" else run.likelihood,
        kernel=run.kernel,
        columns=run.told or None,
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
    document = foreseen(prepared)
    size = _size(document)
    if size > container.MAX_JSON:
        columns = prepared.schema.to_dict()["columns"]
        sizes = {column["name"]: _size(column) for column in columns}
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"the model could not be saved: its columns and classes take {size:,} "
            f"bytes, and a file holds {container.MAX_JSON:,}; leave some out with "
            f"--inputs, or shorten their values; {largest!r} has {sizes[largest]:,}"
        )
    try:
        container.pack(document, {})
    except InputError as error:
        raise InputError(f"the model could not be saved: {error}") from error


def foreseen(prepared: Prepared) -> dict[str, Any]:
    """What a file will hold besides arrays, with the longest number for each number."""
    estimator = make_estimator(prepared.run)
    features = prepared.schema.features
    each = np.full(len(features), LONGEST)
    values = dict.fromkeys(fields.FITTED, LONGEST) | {
        "x_mean_": each,
        "x_scale_": each,
        "message_": "",
        "feature_names_in_": np.array(prepared.schema.names, dtype=object),
        "schema_": prepared.schema,
        "classes_": prepared.classes,
        "categories_": prepared.classes,
    }
    record = Record(
        step=2**63,
        seconds=LONGEST,
        objective=LONGEST,
        score=LONGEST,
        step_size=LONGEST,
        halvings=2**63,
        refused=2**63,
        steps_per_second=LONGEST,
    )
    values["history_"] = history = History()
    history.records = [record] * files.RECORDS
    for name, value in values.items():
        if value is not None:
            setattr(estimator, name, value)
    return {
        "metadata": files.described(estimator, prepared.metadata()),
        "model": REST * "-",
    }


def _check_arrays(prepared: Prepared) -> None:
    """Raises if the posterior alone is more than a file may have that is read."""
    run = prepared.run
    if run.num_inducing == "auto":  # which is a few hundred
        return
    latents = 1 if run.likelihood == "auto" else LIKELIHOODS[run.likelihood].latents
    if latents is None:
        latents = 1 if prepared.classes is None else len(prepared.classes)
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
