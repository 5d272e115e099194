"""From a table or a data set on disk to what a model is trained on.

`prepare` reads the data, makes every choice that a run leaves open (inputs, rows with
nulls, likelihood, classes, batch size), and returns the choices with their reasons.
"""

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad import distributed
from natgrad._config import Run
from natgrad._registry import CLASSES, guesses, kind_of, names
from natgrad._text import listed, naming
from natgrad.data import _tables as tables
from natgrad.data._columns import require
from natgrad.data._dataset import ParquetDataset, is_dataset
from natgrad.data._encoding import MAX_VALUES
from natgrad.data._parquet import Parquet
from natgrad.data._scan import Part, Summary, merge, scan_part
from natgrad.data._schema import EncodedRows, Schema, infer
from natgrad.data._table import target_columns
from natgrad.errors import InputError


BATCH, SHARDS = 1024, 8
"""How many rows a batch of a data set on disk has, and of how many shards."""

INDICES = {"", "Unnamed: 0", "__index_level_0__"}
"""Names that pandas gives to the column of a saved index."""


class Stream(NamedTuple):
    """Batches from disk, and what one pass over the data set found."""

    batches: Parquet
    summary: Summary


class Prepared(NamedTuple):
    """A run in which every choice is made, and the data it is trained on.

    `x` are the rows of a table and `y` their targets; or `x` is a stream of both.
    `notes` are the choices with their reasons, `classes` those of the target, if any.
    `scan` is what a pass over a data set found, for a run that is resumed.
    """

    run: Run
    schema: Schema
    rows: int
    x: Any = None
    y: np.ndarray | None = None
    classes: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    scan: tuple[bytes, ...] = ()

    def metadata(self) -> dict[str, Any]:
        """What is saved with a model, so that it reads other tables in the same way."""
        return {
            "target": self.run.target,
            "likelihood": self.run.likelihood,
            "rows": self.rows,
        }


def prepare(run: Run, scan: tuple[bytes, ...] = ()) -> Prepared:
    """Reads the data of a run, and makes the choices that it leaves open."""
    notes: list[str] = []
    is_disk = is_dataset(run.data)
    prepared, y, values = _scanned(run, scan, notes) if is_disk else _read(run, notes)
    with naming(run.data):
        likelihood = _likelihood(run, y, values, notes)
        classes = _classes(run, values) if likelihood in CLASSES else None
    if classes is not None and not is_disk:
        prepared = prepared._replace(y=as_labels(y))
    run = dataclasses.replace(prepared.run, likelihood=likelihood)
    return prepared._replace(run=run, classes=classes, notes=(*notes,))


def as_labels(y: np.ndarray) -> np.ndarray:
    """Classes as a user would write them: 1, and not 1.0."""
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        return y.astype(np.int64)
    return y.astype(str) if y.dtype == object else y


def guess(y: np.ndarray, values: np.ndarray | None = None) -> tuple[str, str]:
    """The likelihood that suits a target, and why; "auto" if several are compared.

    If `y` is a sample, `values` are the different targets of all rows.
    """
    values = np.unique(y if values is None else values)
    if len(values) < 2:
        raise InputError(
            f"the target is {y[0]!s:.40} in every row; there is nothing to learn"
        )
    is_text = y.dtype.kind in "OSUT"
    if is_text and len(values) > MAX_VALUES:
        raise InputError(
            f"the target has {len(values):,} different strings, such as {values[0]!r}; "
            f"a classifier takes up to {MAX_VALUES} classes: is it the right column?"
        )
    moments = (0.0, 0.0) if is_text else (float(y.mean()), float(y.var()))
    kind = kind_of(values.tolist(), *moments)
    likelihoods = guesses(kind, len(y))
    if likelihoods[1:]:
        compared = f"{', '.join(likelihoods[:-1])} or {likelihoods[-1]}"
        return "auto", f"the target is real; its noise may be {compared}"
    return likelihoods[0], f"the target {_described(kind, values)}"


def _described(kind: str, values: np.ndarray) -> str:
    if kind == "real":
        return "is real"
    if kind in ("count", "overdispersed"):
        more = ", and its variance is above its mean" if kind != "count" else ""
        return f"counts from {values[0]:g} to {values[-1]:g}{more}"
    shown = [str(value) for value in as_labels(values)]
    what = "grades" if kind == "ordinal" else "classes"
    more = ", ..." if shown[6:] else ""
    return f"has {len(shown)} {what}: {', '.join(shown[:6])}{more}"


def _likelihood(
    run: Run, y: np.ndarray, values: np.ndarray | None, notes: list[str]
) -> str:
    likelihood, is_text = run.likelihood, y.dtype.kind in "OU"
    if likelihood == "auto" and run.target_columns.keys() - {"weight", "offset"}:
        return "auto"  # the columns that come with the target decide
    if likelihood == "auto":
        likelihood, reason = guess(y, values)
        notes.append(f"guessed --likelihood {likelihood}: {reason}")
    if is_text and likelihood in names("regression"):
        raise InputError(
            f"the target {run.target!r} holds strings, such as {str(y[0])!r}; the "
            f"likelihood {likelihood!r} takes numbers: use 'auto', or another column"
        )
    if is_text and likelihood in names("ordinal"):
        raise InputError(
            f"the target {run.target!r} holds strings, such as {str(y[0])!r}, whose "
            "order is not known; replace them by numbers such as 1, 2, 3"
        )
    return likelihood


def _classes(run: Run, values: np.ndarray | None) -> np.ndarray:
    if values is None:
        raise InputError(
            f"the target {run.target!r} has more than {MAX_VALUES} different numbers; "
            "a classifier takes fewer classes"
        )
    return as_labels(np.unique(values))


def _inputs(run: Run, columns: list[str], notes: list[str]) -> list[str]:
    """The columns to predict from: by default all but the target and an index."""
    require(columns, [run.target, *run.target_columns.values()])
    if run.inputs:
        return list(run.inputs)
    for place, name in enumerate(columns):
        if name in INDICES:
            shown = repr(name) if name else f"{place + 1}, which has no name,"
            notes.append(f"column {shown} is left out: it seems to be a pandas index")
    others = {run.target, *run.target_columns.values(), *INDICES}
    return [name for name in columns if name not in others]


Read = tuple[Prepared, np.ndarray, np.ndarray | None]
"""Data, with all targets or a sample of them, and their different values if known."""


def _read(run: Run, notes: list[str]) -> Read:
    """Reads a table that fits in memory."""
    others = run.target_columns
    wanted = [*(run.inputs or ()), *others.values(), run.target]
    table = tables.read(run.data, None if run.inputs is None else wanted)
    with naming(run.data):
        inputs = _inputs(run, table.column_names, notes)
        schema = infer(table, inputs, run.nulls, run.date_periods)
        x, is_complete, y = schema.encode(table, run.target)
        if not is_complete.any():
            raise InputError("there is no row without a null")
        rows = EncodedRows(x, target_columns(table, others))
    x, y = rows[is_complete], y[is_complete]
    _note_dropped(len(y), len(table), notes)
    _note_filled(schema, notes)
    with Path(run.data).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    run = dataclasses.replace(run, inputs=tuple(inputs), sha256=digest)
    return Prepared(run, schema, len(y), x, y), y, y


def _scanned(run: Run, scan: tuple[bytes, ...], notes: list[str]) -> Read:
    """Reads a data set on disk once, unless `scan` has what that would find."""
    dataset = ParquetDataset(run.data)
    inputs, others = _inputs(run, dataset.names, notes), run.target_columns
    if not scan:
        options: dict[str, Any] = {"nulls": run.nulls, "seed": run.seed}
        options["date_periods"] = run.date_periods
        options |= distributed.place()._asdict()
        # Columns that come with the target are read as inputs are, and come last.
        part = scan_part(dataset, run.target, [*inputs, *others.values()], **options)
        scan = tuple(distributed.exchange(part.to_bytes()))
    found = merge([Part.from_bytes(part) for part in scan])
    _note_dropped(found.num_complete, found.num_rows, notes)
    shards, batch_size = _sizes(run, int(np.count_nonzero(dataset.rows)))
    run = dataclasses.replace(
        run,
        inputs=tuple(inputs),
        sha256=dataset.fingerprint(),
        shards=shards,
        batch_size=batch_size,
    )
    batches = Parquet(
        dataset,
        run.target,
        batch_size=batch_size,
        seed=run.seed,
        schema=found.schema,
        shards=shards,
        num_complete=found.num_complete,
        columns=others,
    )
    _note_filled(batches.target_columns.inputs, notes)
    stream, rows = Stream(batches, found), found.num_complete
    values = None if found.values is None else np.array(found.values)
    prepared = Prepared(run, batches.target_columns.inputs, rows, stream, scan=scan)
    return prepared, found.sample_y, values


def _note_dropped(rows: int, total: int, notes: list[str]) -> None:
    if rows < total:
        notes.append(f"dropped {total - rows:,} of {total:,} rows: they have a null")


def _note_filled(schema: Schema, notes: list[str]) -> None:
    names = [column.name for column in schema.columns if column.has_gaps]
    if names:
        notes.append(
            f"filled in nulls, and added an indicator of them, in {listed(names)}; "
            "--nulls drop leaves out their rows"
        )


def _sizes(run: Run, groups: int) -> tuple[int, int]:
    """Shards and rows of a batch, in equal parts for all processes and devices."""
    import jax

    processes, shards = distributed.place().processes, run.shards
    if shards is None:
        # As many as the processes have equally many of, if there are row groups for it.
        most = min(max(SHARDS, processes), groups)
        shards = max(processes, most // processes * processes)
    if not isinstance(run.batch_size, str):
        return shards, run.batch_size
    step = math.lcm(shards, jax.device_count())
    return shards, -(-BATCH // step) * step
