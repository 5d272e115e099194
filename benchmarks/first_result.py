"""What a user waits for until the first result, in the default environment.

    export NATGRAD_DATA=folder-of-parquet-files
    export NATGRAD_PYTHON_PEERS=python-with-scikit-learn-and-gpytorch
    python benchmarks/first_result.py                   # everything, for many hours
    python benchmarks/first_result.py readme pima --only alone
    python benchmarks/first_result.py --methods natgrad --states first
    python benchmarks/first_result.py --table           # results/first_result.md

Cases are the README (`readme-first`: its first block), `gp-fit`, the commands `train`,
`evaluate` and `predict`, and the data sets of tables.py with the estimators and their
rivals. Each runs alone and as two copies at the same time, of which the slower counts:

- `first`: a new process, without a compilation cache;
- `again`: the same a second time in that process;
- `cached`: a new process, with a compilation cache that another process filled.

Environment variables that set threads, JAX or XLA are removed. Seconds begin with the
process and end when the case has fitted and predicted. `import` includes the start of
Python, `trace` includes lowering, and `run` is the rest. `others` is how many cores
other programs and other virtual machines took meanwhile: if it is not near 0, distrust
the wall-clock time. Log densities are of test rows, but of the training rows in
`readme-first`.

Every measurement is a line of the CSV file, and a line that is there is not measured
again. Delete it, or give another `--out`, to measure once more. A process is stopped
after `--limit` seconds times its number of runs, and the lines of the runs that are
missing say so.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tables
from first_result_process import NOT_INSTALLED


HERE = Path(__file__).parent
RESULTS = HERE / "results" / "first_result.csv"
SMALL = "boston"
"""The data set of `gp-fit` and of the commands."""

COMMANDS = ("train", "evaluate", "predict")
CASES = ("readme-first", "readme", "gp-fit", *COMMANDS, *tables.SETS)
METHODS = ("natgrad", "exact-gp", "gpytorch", "boosting")
LOADS = {"alone": 1, "pairs": 2}
STATES = ("first", "again", "cached")
PHASES = ("import", "trace", "compile", "run")
KEYS = ("case", "method", "load", "state")
FIELDS = (*KEYS, "wall", *PHASES, "cpu", *(f"cpu_{phase}" for phase in PHASES))
FIELDS += ("programs", "log_density", "others", "note")

Row = dict[str, Any]


# Processes


class Task(NamedTuple):
    case: str
    method: str
    folder: Path
    python: str
    limit: float

    def start(self, cache: Path | None, runs: int) -> tuple[subprocess.Popen, Path]:
        """Starts a process in a folder of its own."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        kind = tables.SETS[self.case].kind if self.case in tables.SETS else ""
        told = [time.time(), self.case, self.method, str(self.folder), kind, runs]
        with (place / "errors.txt").open("w") as errors:
            process = subprocess.Popen(
                [self.python, HERE / "first_result_process.py", json.dumps(told)],
                env=environment(cache, self.case),
                cwd=place,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        return process, place

    def run(self, copies: int, runs: int, cache: Path | None = None) -> list[Row]:
        """A row for each run of the slower copy, or notes why there is none."""
        began, busy, own = time.time(), busy_seconds(), own_seconds()
        started = [self.start(cache, runs) for _ in range(copies)]
        is_late = False
        for process, _ in started:
            try:
                left = began + runs * self.limit - time.time()
                process.wait(timeout=max(left, 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                is_late = True
        others = busy_seconds() - busy - (own_seconds() - own)
        others = {"others": max(others, 0.0) / (time.time() - began)}
        note = f"over {runs * self.limit / 60:g} min for {runs} runs"
        if not is_late:
            note = next((reason(*it) for it in started if it[0].returncode), "")
        found = [answers(place) for _, place in started]
        slower = lambda i: max((copy[i] for copy in found), key=lambda row: row["wall"])
        complete = min(map(len, found))
        rows = [slower(i) | others for i in range(complete)]
        return rows + [{"note": note} | others for _ in range(runs - complete)]


def environment(cache: Path | None, case: str) -> dict[str, str]:
    """This one without settings of threads and JAX, and with the cache if there is.

    It is natgrad's own cache, or JAX's for `gp-fit`, which does not use natgrad's.
    """
    families = ("JAX_", "XLA_", "OMP_", "OPENBLAS_", "MKL_", "KMP_")
    is_setting = lambda key: key.startswith(families) or key.endswith("_THREADS")
    kept = {k: v for k, v in os.environ.items() if not is_setting(k)}
    for key in ("NPROC", "PJRT_NPROC"):
        kept.pop(key, None)
    kept["NATGRAD_COMPILATION_CACHE"] = "" if cache is None else str(cache)
    if cache is not None and case == "gp-fit":
        kept["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        kept["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        kept["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return kept


def answers(place: Path) -> list[Row]:
    path = place / "answer.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def reason(process: subprocess.Popen, place: Path) -> str:
    if process.returncode == NOT_INSTALLED:
        return "not installed"
    lines = (place / "errors.txt").read_text().strip().splitlines() or ["no message"]
    return f"failed: {lines[-1][:200]}"


def own_seconds() -> float:
    """CPU seconds of the processes that have ended, and of this one."""
    return sum(os.times()[:4])


def busy_seconds() -> float:
    """CPU seconds of this machine since its start that were not idle; 0 off Linux."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _, _, *rest = map(int, path.read_text().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


# Cases


def prepare(task: Task) -> None:
    """Writes the data, and trains the model of commands that need one."""
    if task.case.startswith("readme"):
        return
    is_set = task.case in tables.SETS
    data = tables.load(task.case if is_set else SMALL, 0)
    np.savez(task.folder / "data.npz", **data)  # pyright: ignore
    if task.case not in COMMANDS:
        return
    import pandas as pd

    for name, end in (("train", ""), ("test", "_test")):
        x = data[f"x{end}"]
        frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
        frame["target"] = data[f"y{end}"]
        frame.to_parquet(task.folder / f"{name}.parquet")
    if task.case != "train":
        process, place = task._replace(case="train").start(None, 1)
        if process.wait():
            raise RuntimeError(reason(process, place))
        (place / "model").rename(task.folder / "model")


def states(case: str, method: str) -> Sequence[str]:
    """A command is a process, so it has no second time in one; peers have no cache."""
    if method != "natgrad":
        return ("first", "again")
    return ("first", "cached") if case in COMMANDS else STATES


def measure(task: Task, load: str, wanted: Sequence[str], cache: Path) -> list[Row]:
    """The rows of the wanted states."""
    rows: dict[str, Row] = {}
    fresh = ("first", "again") if "again" in wanted else ("first",)
    if set(fresh) & set(wanted):
        rows |= zip(fresh, task.run(LOADS[load], len(fresh)), strict=True)
    if "cached" in wanted:
        failed = rows.get("first", {}).get("note")
        if not cache.exists() and not failed:
            cache.mkdir()
            failed = task.run(1, 1, cache)[0].get("note")  # fills the cache
            if failed:
                shutil.rmtree(cache)  # half filled, it would be taken for a full one
        rows["cached"] = (
            {"note": failed} if failed else task.run(LOADS[load], 1, cache)[0]
        )
    names = dict(zip(KEYS[:3], (task.case, task.method, load), strict=True))
    return [names | {"state": state} | rows[state] for state in wanted]


# Results


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: Row, path: Path) -> None:
    is_new = not path.exists()
    rounded = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(rounded)
    print(*(f"{k}={v}" for k, v in rounded.items() if v != ""), flush=True)


def table(heads: Sequence[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def seconds(row: dict[str, str], field: str = "wall") -> str:
    if not row.get(field):
        return row.get("note", "").split(":")[0] or "–"
    value = float(row[field])
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def text(rows: list[dict[str, str]]) -> str:
    """What you wait for, and where the seconds of natgrad's runs go."""
    found = {tuple(row[key] for key in KEYS): row for row in rows}
    pairs = [(case, method) for case in CASES for method in METHODS]
    waits, shares = [], []
    for case, method in pairs:
        if not any(key[:2] == (case, method) for key in found):
            continue
        title = tables.TITLES[method]
        get = lambda load, state, at=(case, method): found.get((*at, load, state), {})
        first = get("alone", "first") or get("pairs", "first")
        cells = [seconds(get(load, state)) for load in LOADS for state in STATES]
        density = first.get("log_density") or "–"
        waits.append([case, title, *cells, seconds(first, "cpu"), density])
        for state in STATES:
            row = get("alone", state)
            if method == "natgrad" and row.get("wall"):
                spent = [seconds(row, phase) for phase in ("wall", *PHASES, "cpu")]
                shares.append([case, state, *spent, row["programs"], row["others"]])
    ways = [*STATES, *(f"two at once: {state}" for state in STATES)]
    heads = ["case", "method", *ways, "CPU of the first", "log density"]
    parts = ["case", "state", "wall", *PHASES, "CPU", "programs compiled", "others"]
    return (
        f"### Wall-clock seconds to the result\n\n{table(heads, waits)}\n"
        f"### Where natgrad's seconds go, alone\n\n{table(parts, shares)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES, metavar="case")
    parser.add_argument("--only", choices=LOADS, help="one load instead of both")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--states", nargs="+", default=STATES, choices=STATES)
    parser.add_argument("--limit", type=float, default=600, help="seconds of a run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if arguments.table:
        arguments.out.with_suffix(".md").write_text(text(read(arguments.out)))
        return
    peers = os.environ.get("NATGRAD_PYTHON_PEERS", sys.executable)
    for case in arguments.cases:
        for method in METHODS if case in tables.SETS else METHODS[:1]:
            if method not in arguments.methods or not tables.is_wanted(case, method):
                continue
            python = sys.executable if method == "natgrad" else peers
            run_all(case, method, python, arguments)


def run_all(case: str, method: str, python: str, arguments: Any) -> None:
    """Measures what the file has no line of, in both loads with one cache."""
    done = {tuple(row[key] for key in KEYS) for row in read(arguments.out)}
    wanted = {
        load: [
            state
            for state in states(case, method)
            if state in arguments.states and (case, method, load, state) not in done
        ]
        for load in ([arguments.only] if arguments.only else LOADS)
    }
    if not any(wanted.values()):
        return
    with tempfile.TemporaryDirectory() as folder:
        task = Task(case, method, Path(folder), python, arguments.limit)
        prepare(task)
        for load, missing in wanted.items():
            for row in measure(task, load, missing, Path(folder) / "cache"):
                append(row, arguments.out)


if __name__ == "__main__":
    main()
