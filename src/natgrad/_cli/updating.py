"""Updating a model with the rows of a table, in one pass over them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from natgrad import gp
from natgrad._cli import folder
from natgrad._cli.common import print_result, say
from natgrad._cli.folder import MODEL
from natgrad._cli.models import Opened, as_rows, digest, located, open_model
from natgrad._text import counted, naming
from natgrad.data import _tables as tables
from natgrad.data._dataset import ParquetDataset, is_dataset, require_in
from natgrad.data._table import Table, as_table, concatenated
from natgrad.errors import CorruptFileError, InputError
from natgrad.gp._files import FORMAT, load_online, save_online
from natgrad.sklearn._double import in_double
from natgrad.train._progress import Rows as Bar


STATE = "update.natgrad"
"""What a run that was killed continues from. It holds a sample of the rows, and is
deleted at the end."""

SECONDS = 30.0
"""How often it is written."""

FITTED = ("x_scale_", "y_mean_", "n_rows_seen_")
"""What rows change of an estimator besides its model."""


def update(
    model: str, data: str, out: Path, rows: int, is_forced: bool, is_json: bool
) -> None:
    """Writes the model after the rows of a table, in a folder of its own."""
    opened, path = open_model(model), located(data)
    pieces, total, fingerprint = _opened(opened, path, rows)
    note = {"model": digest(opened.path), "data": fingerprint, "rows_per_piece": rows}
    if (out / MODEL).exists() and opened.path.samefile(out / MODEL):
        raise InputError(f"--out is {out}, the model itself; give another folder")
    with folder.in_use(out):
        state = out / STATE
        done, skipped = _restored(opened, state, note, is_forced)
        if not done and (out / MODEL).exists() and not is_forced:
            raise InputError(
                f"{out} has a model already; use --force to replace it, or another "
                "--out"
            )
        last = time.monotonic()
        with Bar(total, min(done * rows, total)) as bar:
            for place, table in enumerate(pieces):
                if place < done:
                    continue
                skipped += _learn(opened, path, table)
                bar.add(len(table))
                if time.monotonic() - last > SECONDS:
                    so_far = {"pieces": place + 1, "skipped": skipped}
                    _save(opened, state, {**note, **so_far})
                    last = time.monotonic()
        metadata = FORMAT.read_metadata(opened.path)["user"]
        metadata["rows"] = int(opened.estimator.n_rows_seen_)
        opened.estimator.save(out / MODEL, metadata=metadata)
        state.unlink(missing_ok=True)
    if skipped:
        say(f"left out {counted(skipped, 'row')} with a null")
    seen, inducing = opened.estimator.n_rows_seen_, opened.estimator.n_inducing_
    result = {"model": str(out / MODEL), "rows": seen, "num_inducing": inducing}
    text = f"{out} has the model of {seen:,g} rows, with {inducing} inducing inputs"
    print_result(result, is_json, text)


def _opened(opened: Opened, path: str, rows: int) -> tuple[Iterator[Table], int, str]:
    """The pieces of a table or of many files, the number of rows, and a fingerprint."""
    others = (opened.estimator.columns or {}).values()
    wanted = [*opened.schema.names, opened.target, *others]
    if is_dataset(path):
        dataset = ParquetDataset(path)
        require_in(dataset.paths[0], dataset.names, wanted)
        wanted = list(dict.fromkeys(wanted))
        places = map(int, np.flatnonzero(dataset.rows))
        groups = (as_table(dataset.read(place, wanted)) for place in places)
        return _pieces(groups, rows), dataset.total, dataset.fingerprint()
    table = tables.read(path)
    tables.require(table.column_names, wanted)
    return _pieces(iter([table]), rows), len(table), digest(Path(path))


def _pieces(groups: Iterator[Table], rows: int) -> Iterator[Table]:
    """Tables of so many rows, the last of what is left."""
    left = None
    for group in groups:
        table = group if left is None else concatenated([left, group])
        whole = len(table) - len(table) % rows
        for start in range(0, whole, rows):
            yield table.rows(slice(start, start + rows))
        left = table.rows(slice(whole, None))
    if left is not None and len(left):
        yield left


def _learn(opened: Opened, path: str, table: Table) -> int:
    """Updates a model with some rows; how many were left out."""
    with naming(path):
        found = as_rows(opened, table, is_target_wanted=True)
    if found.is_complete.any():
        opened.estimator.partial_fit(found.x, found.y)
    return int((~found.is_complete).sum())


@in_double
def _restored(
    opened: Opened, state: Path, note: dict[str, Any], is_forced: bool
) -> tuple[int, int]:
    """Of an interrupted run: the pieces it has learned, and the rows left out."""
    if not state.exists():
        return 0, 0
    online, found = load_online(state)
    if {name: found.get(name) for name in note} != note:
        if is_forced:
            return 0, 0
        raise InputError(
            f"{state.parent} has an update of another model, of other rows or in other "
            "pieces that was interrupted; repeat that command, use another --out, or "
            "--force to begin anew"
        )
    estimator, fitted = opened.estimator, found.get("fitted", {})
    counts: list[Any] = [found.get(name) for name in ("pieces", "skipped")]
    is_good = sorted(fitted) == sorted(FITTED)
    is_good &= all(type(count) is int and count >= 0 for count in counts)
    sizes = {name: np.shape(getattr(estimator, name)) for name in FITTED}
    if not is_good or sizes != {name: np.shape(fitted[name]) for name in FITTED}:
        raise CorruptFileError(f"{state} is damaged; delete it to begin anew")
    for name in FITTED:
        value = fitted[name]
        setattr(estimator, name, np.asarray(value) if np.ndim(value) else value)
    estimator._online = online
    estimator._set_model(online.model)
    say(f"continuing after {online.count:,} rows")
    return counts[0], counts[1]


@in_double
def _save(opened: Opened, state: Path, note: dict[str, Any]) -> None:
    online = getattr(opened.estimator, "_online", None)
    if isinstance(online, gp.Online):
        values = {name: getattr(opened.estimator, name) for name in FITTED}
        fitted = {name: np.asarray(value).tolist() for name, value in values.items()}
        save_online(online, state, {**note, "fitted": fitted})
