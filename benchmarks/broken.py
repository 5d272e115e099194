"""A small data set to train on by the command, and whether a run of it was broken off.

For `slurm.py` and `ray_run.py`: both train the same, once in peace and once with a
process killed on the way, and should end with the same model to the last bit.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from natgrad import _container as container


FILES, GROUPS, ROWS, WIDTH = 4, 4, 5000, 8
COMMAND = ["--data", "data/*.parquet", "--config", "run.toml", "--out", "model"]

RUN = """\
[data]
target = "y"

[model]
likelihood = "gaussian"
num_inducing = 50

[training]
steps = {steps}
batch_size = 512
"""


def prepare(folder: Path, steps: int) -> Path:
    """A folder with a data set and how to train on it."""
    rng = np.random.default_rng(0)
    (folder / "data").mkdir(parents=True)
    for file in range(FILES):
        x = rng.standard_normal((GROUPS * ROWS, WIDTH))
        y = np.sin(2 * x).sum(1) / 2 + 0.3 * rng.standard_normal(len(x))
        columns = {f"x{place}": column for place, column in enumerate(x.T)}
        path = folder / "data" / f"{file}.parquet"
        parquet.write_table(pa.table(columns | {"y": y}), path, row_group_size=ROWS)
    (folder / "run.toml").write_text(RUN.format(steps=steps))
    return folder


def checkpoints(folder: Path) -> list[int]:
    """The steps of which there are checkpoints."""
    paths = (folder / "model" / "checkpoint").glob("*.natgrad")
    return sorted(int(path.stem) for path in paths)


def is_over(folder: Path) -> bool:
    return (folder / "model" / "model.natgrad").exists()


def is_beyond(folder: Path, step: int) -> bool:
    """Whether a run has come further, or to its end."""
    return is_over(folder) or any(each > step for each in checkpoints(folder))


def wait_for_middle(folder: Path) -> None:
    """Waits for a checkpoint after that of the first step."""
    wait_for(lambda: is_beyond(folder, 1))
    if is_over(folder):
        raise SystemExit(
            "the run was over too soon to be broken off: give more --steps"
        )


def digest(folder: Path) -> str:
    """The SHA-256 of the numbers in the model that a run ended with."""
    _, arrays = container.read(folder / "model" / "model.natgrad")
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()


def wait_for(what: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise SystemExit(f"nothing came of it in {seconds:g} seconds")
        time.sleep(0.1)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
