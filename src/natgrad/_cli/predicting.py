"""Predictions: of a table in one file, of a data set in parts that are made once."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad._cli.common import print_result, say
from natgrad._cli.models import (
    Opened,
    digest,
    located,
    open_model,
    predicted,
    predictions,
    read_rows,
)
from natgrad._text import counted, naming
from natgrad.data import _tables as tables
from natgrad.data._dataset import ParquetDataset, is_dataset, require_in
from natgrad.data._schema import EncodedRows
from natgrad.data._table import (
    Table,
    as_arrow,
    as_table,
    concatenated,
    kind_of,
    target_columns,
)
from natgrad.distributed import place
from natgrad.errors import CheckpointError, InputError
from natgrad.train._progress import Rows


NOTE = "_natgrad.json"
"""The file that says what the predictions in a folder are of.

Readers of Parquet folders skip names with an underscore.
"""

PART = 1_000_000
"""How many rows a part has at most, if its row groups have no more."""

SLICE = 2**16
"""How many rows are in memory at a time, and in a row group of predictions."""


class Part(NamedTuple):
    """Row groups of one file that follow each other, and the file they become."""

    name: str
    places: list[int]
    rows: int


class Task(NamedTuple):
    """What is predicted, from what, and which columns are copied."""

    model: Opened
    dataset: ParquetDataset
    keep: list[str]
    levels: list[float]

    @property
    def columns(self) -> list[str]:
        return [*self.keep, *predicted(self.model, self.levels)]

    def note(self) -> dict[str, Any]:
        """All that the predictions depend on, in values that JSON has."""
        return {
            "model": digest(self.model.path),
            "data": self.dataset.fingerprint(),
            "keep": self.keep,
            "quantiles": [] if self.model.is_classifier else self.levels,
            "rows": self.dataset.total,
            "rows_per_part": PART,
        }


def predict(
    model: str, data: str, out: str, levels: list[float], keep: str, is_json: bool
) -> None:
    """Writes predictions for a table, or for a data set of many files."""
    write = predict_dataset if is_dataset(located(data)) else predict_table
    write(model, data, out, levels, keep, is_json)


def predict_table(
    model: str, data: str, out: str, levels: list[float], keep: str, is_json: bool
) -> None:
    """Writes predictions for each row of a table, null where an input is."""
    if out != "-" and Path(out).suffix.lower() not in (".parquet", ".csv"):
        raise InputError(
            f"--out is {out}; it should end in .parquet or .csv, as DATA is one table; "
            "give a folder only for many files, themselves a folder or a pattern"
        )
    if out != "-" and os.path.realpath(out) == os.path.realpath(data):
        raise InputError(f"--out {out} is the input file; write to another")
    opened = open_model(model)
    rows = read_rows(opened, data, is_target_wanted=False)
    wanted = kept(keep, rows.table.column_names, opened, levels)
    columns = {name: rows.table[name] for name in wanted}
    columns |= predictions(opened, rows.x, rows.is_complete, levels)
    tables.write(out, columns)
    say_nulls(int((~rows.is_complete).sum()))
    if out != "-":
        total = len(rows.is_complete)
        given = {"out": out, "rows": total, "columns": list(columns)}
        print_result(
            given, is_json, f"{out} has {total:,} rows of {', '.join(columns)}"
        )


def predict_dataset(
    model: str, data: str, out: str, levels: list[float], keep: str, is_json: bool
) -> None:
    """Writes the predictions of this process's parts of a data set that are missing."""
    folder = _checked(out, data)
    opened, dataset = open_model(model), ParquetDataset(data)
    require_in(dataset.paths[0], dataset.names, opened.schema.names)
    task = Task(opened, dataset, kept(keep, dataset.names, opened, levels), levels)
    parts = cut(dataset)
    mark = _marked(folder, task.note())
    process, processes = place()
    mine = parts[process::processes]
    is_done = np.array([_is_done(folder / part.name, mark) for part in mine], bool)
    done, left = ([*itertools.compress(mine, which)] for which in (is_done, ~is_done))
    _tidy(folder, left)
    with Rows(_rows(mine), _rows(done)) as bar:
        nulls = sum(_write(folder, part, task, mark, bar) for part in left)
    say_nulls(nulls)
    there = set(os.listdir(folder))
    missing = sum(part.name not in there for part in parts)
    given = {
        "out": out,
        "process": process,
        "processes": processes,
        "rows_written": _rows(left),
        "parts_written": len(left),
        "rows_found": _rows(done),
        "parts_found": len(done),
        "rows": dataset.total,
        "parts": len(parts),
        "missing": missing,
        "is_complete": not missing,
        "columns": task.columns,
    }
    print_result(given, is_json, _summary(given))


def kept(keep: str, names: list[str], model: Opened, levels: list[float]) -> list[str]:
    """The columns that --keep means, to copy next to the predictions."""
    asked = [name.strip() for name in keep.split(",") if name.strip()]
    wanted = names if keep == "all" else list(dict.fromkeys(asked))
    tables.require(names, wanted)
    if both := [name for name in wanted if name in predicted(model, levels)]:
        raise InputError(
            f"--keep has the column {both[0]!r}, and so have the predictions; keep "
            "others, or rename it"
        )
    return wanted


def say_nulls(missing: int) -> None:
    """Prints how many rows could not be predicted, if there are any."""
    if missing:
        say(f"{counted(missing, 'row')} with a null: predictions there are null")


def cut(dataset: ParquetDataset) -> list[Part]:
    """The parts of a data set: what they are depends on its row groups alone."""
    runs: list[list[int]] = []
    rows = 0
    for here in map(int, np.flatnonzero(dataset.rows)):
        size = int(dataset.rows[here])
        is_other = not runs or dataset.files[here] != dataset.files[runs[-1][-1]]
        if is_other or rows + size > PART:
            runs.append([])
            rows = 0
        runs[-1].append(here)
        rows += size
    stems = [Path(dataset.paths[dataset.files[run[0]]]).stem[:50] for run in runs]
    return [
        Part(f"part-{number:05}-{stem}.parquet", run, int(dataset.rows[run].sum()))
        for number, (stem, run) in enumerate(zip(stems, runs, strict=True))
    ]


def _checked(out: str, data: str) -> Path:
    """The folder for predictions of a data set."""
    if out == "-" or Path(out).suffix.lower() in (".parquet", ".csv"):
        raise InputError(
            f"--out is {out}, and DATA is a data set; its predictions are many files: "
            "give a folder for them"
        )
    if "://" in out:
        raise InputError(
            f"--out is {out}; it should be a folder that is mounted here: write there, "
            "and copy it"
        )
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out is {out}, which is a file; it should be a folder")
    if Path(data).is_dir() and folder.resolve().is_relative_to(Path(data).resolve()):
        raise InputError(
            f"--out is {out}, in the folder {data}, which is DATA; predictions should "
            "be outside of it"
        )
    return folder


def _marked(folder: Path, note: dict[str, Any]) -> bytes:
    """Writes what the folder is of, unless it is there, and must be the same.

    Its hash is in each part, so that none is taken for what it is not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, text = folder / NOTE, json.dumps(note, indent=2) + "\n"
    names = [name for name in os.listdir(folder) if name[:1] != "."]
    if names and NOTE not in names:
        raise InputError(
            f"{folder} has no {NOTE}, but {min(names)}; write predictions to a "
            "new folder, or continue in the one where they began"
        )
    if not names:
        # Processes that begin together write the same, each in one go.
        with tables.replacing(path) as draft:
            draft.write_text(text, "utf-8")
    try:
        found = json.loads(path.read_text("utf-8"))
        unlike = [key for key in note if found[key] != note[key]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read ({error!r:.60}); give a new folder"
        ) from error
    if unlike:
        raise InputError(
            f"{folder} has predictions that were begun otherwise: "
            + ", ".join(
                f"{key} was {_short(found[key])} and is {_short(note[key])}"
                for key in unlike
            )
            + "; give the same command, or a new folder"
        )
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _short(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return str(value)[:12]


def _is_done(path: Path, mark: bytes) -> bool:
    """Whether a part is there, whole, and of this command."""
    from pyarrow import ArrowException, parquet

    try:
        found = parquet.read_metadata(path).metadata or {}
    except (ArrowException, OSError):
        return False
    return found.get(b"natgrad") == mark


def _tidy(folder: Path, parts: list[Part]) -> None:
    """Removes what writers of these parts left behind that were killed."""
    ours = {part.name for part in parts}
    for name in os.listdir(folder):
        # As `replacing` calls them: a dot, the name and an ending.
        if name[:1] == "." and name[1:].removesuffix(".tmp") in ours:
            (folder / name).unlink(missing_ok=True)


def _write(folder: Path, part: Part, task: Task, mark: bytes, bar: Rows) -> int:
    """Predicts a part into its file; how many of its rows have a null."""
    from pyarrow import parquet

    nulls = 0
    try:
        with tables.replacing(folder / part.name) as draft:
            answers = _answers(part, task)
            first = next(answers)
            schema = first.schema.with_metadata({b"natgrad": mark})
            # Numbers that hardly repeat are larger with a dictionary, and take longer.
            texts = [field.name for field in schema if kind_of(field.type) == "text"]
            options: Any = {"write_page_checksum": True, "use_dictionary": texts}
            with parquet.ParquetWriter(draft, schema, **options) as writer:
                for answer in itertools.chain([first], answers):
                    writer.write_table(answer)
                    nulls += answer[-1].null_count
                    bar.add(len(answer))
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; parts that are complete are kept: once it can be written, the "
            "same command continues"
        ) from error
    return nulls


def _answers(part: Part, task: Task) -> Iterator[Any]:
    """What is written of a part, slice by slice."""
    model = task.model
    for pieces in _slices(part, task):
        encoded = []
        for where, piece in pieces:
            with naming(where):
                encoded.append(model.schema.encode(piece))
        x = np.concatenate([some.x for some in encoded])
        is_complete = np.concatenate([some.is_complete for some in encoded])
        whole = concatenated([piece for _, piece in pieces])
        others = target_columns(whole, model.estimator.columns or {}, False)
        rows = EncodedRows(x, others)[is_complete]
        columns = {name: whole[name] for name in task.keep}
        yield as_arrow(columns | predictions(model, rows, is_complete, task.levels))


def _slices(part: Part, task: Task) -> Iterator[list[tuple[str, Table]]]:
    """The rows of a part in slices, each of pieces from single row groups."""
    others = (task.model.estimator.columns or {}).values()
    there = [name for name in others if name in task.dataset.names]
    wanted = list(dict.fromkeys([*task.keep, *task.model.schema.names, *there]))
    pieces, room = [], SLICE
    for here in part.places:
        table, start = as_table(task.dataset.read(here, wanted)), 0
        while start < len(table):
            piece = table.rows(slice(start, start + room))
            after = f" from row {start:,}" if start else ""
            pieces.append((task.dataset.where(here) + after, piece))
            start, room = start + len(piece), room - len(piece)
            if not room:
                yield pieces
                pieces, room = [], SLICE
    if pieces:
        yield pieces


def _rows(parts: list[Part]) -> int:
    return sum(part.rows for part in parts)


def _summary(given: dict[str, Any]) -> str:
    out, parts = given["out"], counted(given["parts"], "part")
    who = ""
    if given["processes"] > 1:
        who = f"process {given['process']} of {given['processes']}: "
    text = f"{who}wrote {given['rows_written']:,} rows in "
    text += counted(given["parts_written"], "part")
    if given["parts_found"]:
        found = counted(given["parts_found"], "part")
        text += f", and found {given['rows_found']:,} in {found} done"
    if given["missing"]:
        text += f"\n{given['missing']:,} of {parts} left, which other processes write"
        return text
    columns = ", ".join(given["columns"])
    return f"{text}\n{out} is complete: {given['rows']:,} rows of {columns} in {parts}"
