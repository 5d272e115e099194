"""What is saved with a model, and a test before the first step that it can be."""

import json
from typing import Any

import numpy as np

from natgrad import _container as envelope
from natgrad._cli.preparing import Prepared
from natgrad.errors import InputError
from natgrad.sklearn import _fields as fields, _files as files
from natgrad.train._history import History, Record


LONGEST = -1.2345678901234567e-300
"""No number takes more characters in JSON."""

REST = 2**16
"""Bytes for what is not known beforehand: the classes of the model, and a message."""


def table_metadata(prepared: Prepared) -> dict[str, Any]:
    """What is saved with a model, so that a table can be read as it was."""
    return {
        "schema": prepared.schema.to_dict(),
        "target": prepared.run.target,
        "likelihood": prepared.run.likelihood,
        "rows": prepared.rows,
    }


def check_can_be_saved(estimator: Any, prepared: Prepared) -> None:
    """Raises if the file of a model could not hold what will be known of it.

    It leaves the estimator fitted in name only: give one that is not used again.
    """
    _check_arrays(prepared)
    document = foreseen(estimator, prepared)
    size = _size(document)
    if size > envelope.MAX_JSON:
        columns = prepared.schema.to_dict()["columns"]
        sizes = {column["name"]: _size(column) for column in columns}
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"the model could not be saved: its columns and classes take {size:,} "
            f"bytes, and a file holds {envelope.MAX_JSON:,}; leave some out with "
            f"--inputs, or shorten their values; {largest!r} has {sizes[largest]:,}"
        )
    try:
        envelope.pack(document, {})
    except InputError as error:
        raise InputError(f"the model could not be saved: {error}") from error


def foreseen(estimator: Any, prepared: Prepared) -> dict[str, Any]:
    """What a file will hold besides arrays, with the longest number for each number."""
    features = prepared.schema.features
    each = np.full(len(features), LONGEST)
    values = dict.fromkeys(fields.FITTED, LONGEST) | {
        "x_mean_": each,
        "x_scale_": each,
        "message_": "",
        "feature_names_in_": np.array(features, dtype=object),
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
        "metadata": files.described(estimator, table_metadata(prepared)),
        "model": REST * "-",
    }


def _check_arrays(prepared: Prepared) -> None:
    """Raises if the posterior alone is more than a file may have that is read."""
    run, latents = prepared.run, 1
    if run.likelihood == "heteroskedastic":
        latents = 2
    elif prepared.classes is not None and run.likelihood in ("softmax", "robust-max"):
        latents = len(prepared.classes)
    if run.num_inducing == "auto":  # which is a few hundred
        return
    inducing = min(int(run.num_inducing), prepared.rows)
    size = 8 * latents * inducing**2
    if size > envelope.MAX_BYTES:
        raise InputError(
            f"the model would be a file of {size:,} bytes or more, and at most "
            f"{envelope.MAX_BYTES:,} are read; use a --num-inducing "
            f"below {inducing:,}"
        )


def _size(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())
