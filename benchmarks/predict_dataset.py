"""Predictions for a data set by two processes, of which one is killed and begun again.

    python benchmarks/predict_dataset.py --folder /some/disk --out benchmarks/results

A data set of ten million rows of an id and 8 inputs, in ten files with row groups of
50,000, and a model of 100 inducing inputs. Two processes predict it together, each with
one thread; once it has made a few parts the second is killed by SIGKILL in the middle
of another, and begun again. Then all ids are counted: each should be there once, in the
order of the data set. Times include the starts of the processes, and what the kill
cost; CPU time is that of the process that was left alone. The memory is the highest
that the kernel saw of a process.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import parquet


FILES, GROUP, WIDTH, INDUCING = 10, 50_000, 8, 100
THREADS = {"NPROC": "1", "PJRT_NPROC": "1", "OMP_NUM_THREADS": "1"}
THREADS |= {"OPENBLAS_NUM_THREADS": "1"}
THREADS |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
COMMAND = [sys.executable, "-c", "from natgrad._cli import main; main()"]


def make_dataset(folder: Path, rows: int) -> None:
    """Files of equal size; their ids count up through all of them."""
    folder.mkdir()
    each = rows // FILES
    for number in range(FILES):
        rng = np.random.default_rng(number)
        columns = {"id": np.arange(number * each, (number + 1) * each)}
        columns |= {f"x{k}": rng.standard_normal(each) for k in range(WIDTH)}
        path = folder / f"{number:04}.parquet"
        parquet.write_table(arrow.table(columns), path, row_group_size=GROUP)


def make_model(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5000, WIDTH))
    y = np.sin(2 * x).sum(1) / 2 + 0.3 * rng.standard_normal(5000)
    table = arrow.table({f"x{k}": x[:, k] for k in range(WIDTH)} | {"y": y})
    parquet.write_table(table, folder / "train.parquet")
    command = f"train {folder}/train.parquet --target y --likelihood gaussian"
    command += f" --num-inducing {INDUCING} --steps 500 --out {folder}/model"
    subprocess.run(
        [*COMMAND, *command.split()],
        env=os.environ | THREADS,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Process:
    """One of the two, with what it says and the memory that it had at most."""

    def __init__(self, folder: Path, number: int):
        command = f"predict {folder}/model {folder}/data --out {folder}/predictions"
        place = {"NATGRAD_PROCESS_ID": str(number), "NATGRAD_NUM_PROCESSES": "2"}
        self.process = subprocess.Popen(
            [*COMMAND, *command.split(), "--keep", "id", "--json"],
            env=os.environ | THREADS | place,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def end(self) -> tuple[dict, Any]:
        """What it gave, and what the kernel saw of it."""
        assert self.process.stdout is not None
        text = self.process.stdout.read()
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a process ended with {self.process.returncode}")
        return json.loads(text) if text else {}, used


def parts(folder: Path, number: int) -> list[Path]:
    found = (folder / "predictions").glob("part-*.parquet")
    return [path for path in found if int(path.name[5:10]) % 2 == number]


def drafts(folder: Path, number: int) -> list[Path]:
    found = (folder / "predictions").glob(".part-*.tmp")
    return [path for path in found if int(path.name[6:11]) % 2 == number]


def killed(folder: Path, process: Process) -> int:
    """Kills the second process in the middle of its third part; how many it has."""
    while len(parts(folder, 1)) < 2 or not any(
        path.stat().st_size > 2**20 for path in drafts(folder, 1) if path.exists()
    ):
        if process.process.poll() is not None:
            raise RuntimeError("the process ended before it could be killed")
        time.sleep(0.01)
    process.process.send_signal(signal.SIGKILL)
    process.end()
    if not drafts(folder, 1):
        raise RuntimeError("the process was killed between two parts")
    return len(parts(folder, 1))


def counted(folder: Path, rows: int) -> dict[str, int]:
    """How often each id is there."""
    times = np.zeros(rows, np.int64)
    is_ordered, last, nulls = True, -1, 0
    for path in sorted((folder / "predictions").glob("*.parquet")):
        table = parquet.read_table(path)
        ids = table["id"].to_numpy()
        times += np.bincount(ids, minlength=rows)
        is_ordered &= bool((np.diff(ids, prepend=last) == 1).all())
        last = ids[-1]
        nulls += sum(column.null_count for column in table.columns)
    found = {"once": int((times == 1).sum()), "missing": int((times == 0).sum())}
    found |= {"more than once": int((times > 1).sum()), "nulls": nulls}
    return (
        found
        | {"drafts left": len(drafts(folder, 0) + drafts(folder, 1))}
        | ({} if is_ordered else {"out of order": 1})
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="Where to make the data set.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = arguments.rows
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        make_dataset(folder / "data", rows)
        make_model(folder)
        began = time.monotonic()
        first, second = (Process(folder, number) for number in (0, 1))
        had = killed(folder, second)
        after = time.monotonic() - began
        again, used_again = Process(folder, 1).end()
        given, used = first.end()
        spent = time.monotonic() - began
        found = counted(folder, rows)
        size = sum(p.stat().st_size for p in (folder / "predictions").iterdir())
        parts_total = again["parts"]
    finally:
        shutil.rmtree(folder)
    is_exact = found["once"] == rows and not sum(
        count for name, count in found.items() if name != "once"
    )
    written, memory = given["rows_written"], max(used.ru_maxrss, used_again.ru_maxrss)
    per_second = written / (used.ru_utime + used.ru_stime)
    lines = [
        f"`python benchmarks/predict_dataset.py --rows {rows}`",
        "",
        f"{rows:,} rows of {WIDTH} inputs, M = {INDUCING}, two processes of one thread "
        f"on {os.cpu_count()} cores; process 1 killed by SIGKILL after {after:.0f} s, "
        f"with {had} of its {parts_total // 2} parts made, and begun again.",
        "",
        "| | |",
        "|---|---|",
        f"| seconds in all, with the starts and the kill | {spent:.1f} |",
        f"| rows per second, both together | {rows / spent:,.0f} |",
        "| rows per second of CPU time, process 0 with its start | "
        f"{per_second:,.0f} |",
        f"| rows written by process 0 | {written:,} |",
        f"| rows written by process 1, begun again | {again['rows_written']:,} |",
        f"| rows it found done | {again['rows_found']:,} |",
        f"| peak memory of a process, MiB | {memory / 2**10:,.0f} |",
        f"| bytes of predictions | {size:,} |",
        *(f"| ids: {name} | {count:,} |" for name, count in found.items()),
        f"| **each id once, in order** | **{'yes' if is_exact else 'NO'}** |",
        "",
    ]
    print("\n".join(lines))
    if arguments.out:
        (arguments.out / "predict_parquet.md").write_text("\n".join(lines), "utf-8")
    sys.exit(0 if is_exact else 1)


if __name__ == "__main__":
    main()
