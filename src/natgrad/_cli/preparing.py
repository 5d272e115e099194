"""What a run is trained on, with every choice made that was left open."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad import _config as runs
from natgrad._cli.common import say
from natgrad._cli.folder import absolute, framed, located, refuse_nulls, said_of
from natgrad._cli.targets import as_labels, guess, target_of
from natgrad._config import Run
from natgrad.data import _tables as tables
from natgrad.data._tables import Schema
from natgrad.errors import InputError


INDICES = {"", "Unnamed: 0", "__index_level_0__"}
"""What a column is called that is there because pandas wrote its index."""


class Prepared(NamedTuple):
    """A run whose every choice is made, and what it is trained on.

    `learn` has an estimator learn from the data; `keep` writes what a resumed run needs
    with it to a folder. `classes` are those of the target, if it has any.
    """

    run: Run
    schema: Schema
    rows: int
    learn: Callable[..., Any]
    keep: Callable[[Path], None] = lambda folder: None
    is_dataset: bool = False
    classes: np.ndarray | None = None


def prepare_table(run: Run) -> Prepared:
    """Reads the data of a run, and makes the choices that were left open."""
    path = located(run.data)
    columns = None if run.inputs is None else [*run.inputs, run.target]
    table = tables.read(path, columns)
    with said_of(path):
        tables.require(table.column_names, [run.target])
        inputs = run.inputs or all_inputs(table.column_names, run.target)
        schema = tables.infer(table, inputs, run.nulls)
        encoded = schema.encode(table)
        y, is_there = target_of(table, run.target)
        if not is_there.all() and run.nulls != "drop":
            refuse_nulls(is_there, run.target)
        is_complete = encoded.is_complete & is_there
        if not is_complete.any():
            raise InputError("there is no row without a null")
        if not is_complete.all():
            say(f"{(~is_complete).sum():,} of {len(y):,} rows have a null: left out")
        y = y[is_complete]
        likelihood, classes = likelihood_of(y, run), None
        if likelihood in runs.CLASSES:
            y = as_labels(y)
            classes = np.unique(y)
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    run = dataclasses.replace(
        run,
        data=absolute(path),
        inputs=tuple(inputs),
        likelihood=likelihood,
        sha256=digest,
    )
    x = framed(encoded.x[is_complete], schema)
    learn = lambda estimator, **options: estimator._fit(x, y, **options)
    return Prepared(run, schema, len(y), learn, classes=classes)


def likelihood_of(y: np.ndarray, run: Run) -> str:
    """The likelihood of a run, guessed and printed if it was left open."""
    likelihood, is_text = run.likelihood, y.dtype.kind in "OU"
    if likelihood == "auto":
        likelihood, reason = guess(y)
        say(f"guessed --likelihood {likelihood}: {reason}")
    if likelihood in runs.REGRESSION and is_text:
        raise InputError(
            f"the target {run.target!r} is of strings, such as {str(y[0])!r}; the "
            f"likelihood {likelihood!r} is of numbers: use 'auto', or take another "
            "column"
        )
    if likelihood in runs.ORDINAL and is_text:
        raise InputError(
            f"the target {run.target!r} is of strings, such as {str(y[0])!r}, whose "
            "order is not known; make numbers of it, as 1, 2, 3"
        )
    return likelihood


def all_inputs(names: list[str], target: str) -> list[str]:
    """All columns but the target and those that pandas adds."""
    for place, name in enumerate(names):
        if name in INDICES:
            shown = repr(name) if name else f"{place + 1}, which has no name,"
            say(f"column {shown} is left out: it looks like an index")
    return [name for name in names if name not in {target, *INDICES}]
