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
from natgrad._printable import naming
from natgrad._registry import CLASSES, guesses, kind_of, names
from natgrad.data import _tables as tables
from natgrad.data._columns import require
from natgrad.data._dataset import ParquetDataset, is_dataset
from natgrad.data._parquet import Parquet
from natgrad.data._scan import Part, Summary, merge, scan_part
from natgrad.data._tables import MAX_VALUES, Schema
from natgrad.errors import InputError


BATCH, SHARDS = 1024, 8
"""How many rows a batch of a data set on disk has, and of how many shards."""

INDICES = {"", "Unnamed: 0", "__index_level_0__"}
"""What a column is called that is there because pandas wrote its index."""


class Stream(NamedTuple):
    """Batches from disk, and what one pass over the data set found."""

    batches: Parquet
    summary: Summary


class Prepared(NamedTuple):
    """A run in which every choice is made, and the data it is trained on.

    `x` are named columns of inputs and `y` targets; or `x` is a stream of both. `notes`
    are the choices with their reasons, `classes` those of the target, if it has any.
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
            "schema": self.schema.to_dict(),
            "target": self.run.target,
            "likelihood": self.run.likelihood,
            "rows": self.rows,
        }


class _Found(NamedTuple):
    """What is in a table in memory or on disk.

    `y` are all its targets, or a sample; `values` have each different one, if known.
    """

    schema: Schema
    rows: int
    total: int
    y: np.ndarray
    values: np.ndarray | None
    sha256: str
    source: Any


def prepare(run: Run, scan: tuple[bytes, ...] = ()) -> Prepared:
    """Reads the data of a run, and makes the choices that it leaves open."""
    import pyarrow as arrow

    notes: list[str] = []
    is_disk = is_dataset(run.data)
    found = _scanned(run, scan, notes) if is_disk else _read(run, notes)
    if dropped := found.total - found.rows:
        notes.append(f"dropped {dropped:,} of {found.total:,} rows: they have a null")
    with naming(run.data):
        likelihood = _likelihood(run, found.y, notes)
        classes = _classes(run, found) if likelihood in CLASSES else None
    run = dataclasses.replace(
        run,
        inputs=tuple(found.schema.names),
        likelihood=likelihood,
        sha256=found.sha256,
    )
    if not is_disk:
        y = found.y if classes is None else as_labels(found.y)
        columns, features = np.ascontiguousarray(found.source.T), found.schema.features
        x = arrow.table([*columns], names=features)  # estimators keep the names
        return Prepared(run, found.schema, found.rows, x, y, classes, (*notes,))
    dataset, summary, scan = found.source
    run = _batched(run, len(dataset))
    batches = Parquet(
        dataset,
        run.target,
        batch_size=int(run.batch_size),
        seed=run.seed,
        schema=summary.schema,
        shards=run.shards or 1,
        num_complete=summary.num_complete,
    )
    x = Stream(batches, summary)
    return Prepared(run, found.schema, found.rows, x, None, classes, (*notes,), scan)


def as_labels(y: np.ndarray) -> np.ndarray:
    """Classes as a user would write them: 1, and not 1.0."""
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        return y.astype(np.int64)
    return y.astype(str) if y.dtype == object else y


def guess(y: np.ndarray) -> tuple[str, str]:
    """The likelihood that suits a target, and why; "auto" if several are compared."""
    values = np.unique(y)
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


def _likelihood(run: Run, y: np.ndarray, notes: list[str]) -> str:
    likelihood, is_text = run.likelihood, y.dtype.kind in "OU"
    if likelihood == "auto":
        likelihood, reason = guess(y)
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


def _classes(run: Run, found: _Found) -> np.ndarray:
    if found.values is None:
        raise InputError(
            f"the target {run.target!r} has more than {MAX_VALUES} different numbers; "
            "a classifier takes fewer classes"
        )
    return as_labels(np.unique(found.values))


def _inputs(run: Run, columns: list[str], notes: list[str]) -> list[str]:
    """The columns to predict from: by default all but the target and an index."""
    require(columns, [run.target])
    if run.inputs:
        return list(run.inputs)
    for place, name in enumerate(columns):
        if name in INDICES:
            shown = repr(name) if name else f"{place + 1}, which has no name,"
            notes.append(f"column {shown} is left out: it seems to be a pandas index")
    return [name for name in columns if name not in {run.target, *INDICES}]


def _read(run: Run, notes: list[str]) -> _Found:
    """Reads a table that fits in memory."""
    columns = None if run.inputs is None else [*run.inputs, run.target]
    table = tables.read(run.data, columns)
    with naming(run.data):
        inputs = _inputs(run, table.column_names, notes)
        schema = tables.infer(table, inputs, run.nulls)
        x, is_complete, y = schema.encode(table, run.target)
        if not is_complete.any():
            raise InputError("there is no row without a null")
    with Path(run.data).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    y = y[is_complete]
    return _Found(schema, len(y), len(x), y, y, digest, x[is_complete])


def _scanned(run: Run, scan: tuple[bytes, ...], notes: list[str]) -> _Found:
    """Reads a data set on disk once, unless `scan` has what that would find."""
    dataset = ParquetDataset(run.data)
    inputs = _inputs(run, dataset.names, notes)
    if not scan:
        here = distributed.place()._asdict()
        options = {"nulls": run.nulls, "seed": run.seed, **here}
        part = scan_part(dataset, run.target, inputs, **options)
        scan = tuple(distributed.exchange(part.to_bytes()))
    summary = merge([Part.from_bytes(part) for part in scan])
    return _Found(
        summary.schema,
        summary.num_complete,
        summary.num_rows,
        summary.sample_y,
        None if summary.values is None else np.array(summary.values),
        dataset.fingerprint(),
        (dataset, summary, scan),
    )


def _batched(run: Run, groups: int) -> Run:
    """A run with equal batches for all shards, processes and devices."""
    import jax

    processes = distributed.place().processes
    shards, size = run.shards, run.batch_size
    if shards is None:
        # As many as the processes have equally many of, if there are row groups for it.
        most = min(max(SHARDS, processes), groups)
        shards = max(processes, most // processes * processes)
    if isinstance(size, str):
        step = math.lcm(shards, jax.device_count())
        size = -(-BATCH // step) * step
    return dataclasses.replace(run, shards=shards, batch_size=size)
