"""Training from a data set: Parquet files whose rows are read as they are needed."""

import dataclasses
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from natgrad import _config as runs, distributed
from natgrad._cli.common import say
from natgrad._cli.folder import SCAN, absolute
from natgrad._cli.preparing import Prepared, all_inputs, likelihood_of
from natgrad._cli.targets import as_labels
from natgrad._config import Run
from natgrad.data import _tables as tables
from natgrad.data._dataset import ParquetDataset
from natgrad.data._parquet import Parquet
from natgrad.data._scan import Part, Summary, merge, scan_part
from natgrad.errors import InputError


BATCH, SHARDS = 1024, 8


def prepare_dataset(run: Run, folder: Path | None) -> Prepared:
    """Looks at a data set once, and makes the choices of a run that were left open."""
    dataset = ParquetDataset(run.data)
    tables.require(dataset.names, [run.target])
    inputs = list(run.inputs or all_inputs(dataset.names, run.target))
    parts = _read(folder) if folder is not None else None
    if parts is None:
        files = tables.counted(len(dataset.paths), "file")
        say(f"{dataset.total:,} rows in {files}: looking at them once")
        here = distributed.place()
        part = scan_part(
            dataset, run.target, inputs, run.nulls, seed=run.seed, **here._asdict()
        )
        parts = distributed.exchange(_packed(part))
    found = merge([_unpacked(part) for part in parts])
    if found.num_complete < found.num_rows:
        missing = found.num_rows - found.num_complete
        say(f"{missing:,} of {found.num_rows:,} rows have a null: left out")
    likelihood = likelihood_of(found.sample_y, run)
    classes = None
    if likelihood in runs.CLASSES:
        classes = _classes(found, run.target)
    shards = run.shards or _shards(distributed.place().processes, len(dataset))
    size = run.batch_size
    size = _filled(BATCH, shards) if isinstance(size, str) else size
    run = dataclasses.replace(
        run,
        data=absolute(run.data),
        inputs=tuple(inputs),
        likelihood=likelihood,
        sha256=dataset.fingerprint(),
        batch_size=size,
        shards=shards,
    )
    rows = Parquet(
        dataset,
        run.target,
        batch_size=size,
        seed=run.seed,
        schema=found.schema,
        shards=shards,
        num_complete=found.num_complete,
    )

    def learn(estimator: Any, **options: Any) -> Any:
        from natgrad.sklearn import _streaming as streaming

        return streaming.fit(estimator, rows, found, classes, **options)

    def keep(folder: Path) -> None:
        with tables.replacing(folder / SCAN) as draft, draft.open("wb") as file:
            np.savez(file, *[np.frombuffer(part, np.uint8) for part in parts])

    return Prepared(run, found.schema, found.num_complete, learn, keep, True, classes)


def _shards(processes: int, groups: int) -> int:
    """As many as the processes have equally many of, if there are row groups for it."""
    most = min(max(SHARDS, processes), groups)
    return max(processes, most // processes * processes)


def _filled(rows: int, shards: int) -> int:
    """So many rows or a few more, to be equal parts for all shards and devices."""
    import jax

    step = math.lcm(shards, jax.device_count())
    return -(-rows // step) * step


def _classes(found: Summary, target: str) -> np.ndarray:
    if found.values is None:
        raise InputError(
            f"the target {target!r} has more than {tables.MAX_VALUES} different "
            "numbers; they are no classes"
        )
    return as_labels(np.array(found.values))


def _packed(part: Part) -> bytes:
    """What one process has found, for the others and for a file."""
    rest = json.dumps([part.values, part.names, part.nulls, part.total]).encode()
    file = io.BytesIO()
    np.savez(
        file,
        moments=part.moments,
        rows=part.rows,
        sample=part.sample,
        rest=np.frombuffer(rest, np.uint8),
    )
    return file.getvalue()


def _unpacked(data: bytes) -> Part:
    with np.load(io.BytesIO(data)) as file:
        rest = json.loads(file["rest"].tobytes())
        return Part(file["moments"], file["rows"], file["sample"], *rest)


def _read(folder: Path) -> list[bytes] | None:
    """What was found when the run began, if all processes see it."""
    try:
        with np.load(folder / SCAN) as file:
            found = [file[name].tobytes() for name in file.files]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        found = None
    is_there = distributed.exchange(b"no" if found is None else b"yes")
    return found if all(word == b"yes" for word in is_there) else None
