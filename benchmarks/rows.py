"""The study of rows: one method on some sets and splits, each run in its own process.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/rows.py lightgbm power,kin8nm 20,21
    python benchmarks/rows.py engine all all      # every set, each with its own splits
    python benchmarks/rows.py engine choose 0,1   # the half on which to choose
    python benchmarks/rows.py table               # writes results/rows.md

A run is one line of results/rows.csv, also one that fails. A run that is there is not
made again, and rows.csv holds what was run; log densities of test rows are kept in
the folder that NATGRAD_BENCHMARKS names. The Python that runs the command needs pandas,
pyarrow, SciPy and the packages of the method: natgrad and scikit-learn, or

    pip install lightgbm==4.7.0 gpboost==1.8.0 scikit-learn==1.9.1 pandas pyarrow

The engine is `engine(data, use_groups=...)` of `rows_engine.py`, which takes what
`rows_data.load` returns and answers as `rows_scores` says; "engine-groups" and
"lightgbm-groups" run only on sets with groups and pass them on.
"""

import importlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rows_scores
import tables
from rows_data import SETS, load


LIMITS = {"natgrad": 900, "gpboost": 300, "gpboost-vif": 300, "exact-gp": 600}
"""CPU seconds of a run, where there is a limit."""

LARGEST = {"exact-gp": 1500}


def work(method: str, name: str, split: int, folder: Path) -> None:
    """What the process of a run does: fits, predicts, and writes the answer."""
    data = load(name, split)
    use_groups, plain = method.endswith("-groups"), method.removesuffix("-groups")
    module = "rows_engine" if plain.startswith("engine") else "rows_rivals"
    entry = getattr(importlib.import_module(module), plain.replace("-", "_"))
    began = time.process_time()
    if limit := LIMITS.get(method):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(began) + limit, hard))
    answer = entry(data, use_groups=use_groups)
    answer["cpu"] = time.process_time() - began
    np.savez(folder / "answer.npz", **answer)


def run(method: str, name: str, split: int) -> dict[str, Any]:
    """One line of results."""
    row: dict[str, Any] = {"set": name, "split": split, "method": method}
    data = load(name, split)
    row |= {"rows": len(data["y"]), "test_rows": len(data["y_test"])}
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, __file__, "work", method, name, str(split), made]
        ended = subprocess.run(
            command,
            env=os.environ | tables.ONE_THREAD,
            stderr=subprocess.PIPE,
            text=True,
        )
        path = Path(made) / "answer.npz"
        if not path.exists():
            reason = (ended.stderr.strip().splitlines() or ["no message"])[-1][:200]
            is_late = ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
            limit = LIMITS.get(method)
            return row | {"note": f"over {limit} s" if is_late else f"failed: {reason}"}
        with np.load(path) as file:
            answer = dict(file)
    scores, log_density = rows_scores.score(answer, data)
    if not np.isfinite(scores["log_density"]):
        return row | {"note": "failed: its log density is not finite"}
    kept = rows_scores.kept(name, split, method)
    kept.parent.mkdir(parents=True, exist_ok=True)
    groups = data["groups_test"]
    groups = np.arange(len(log_density)) if groups is None else groups
    np.savez(kept, log_density=log_density, groups=groups)
    predict_cpu = float(answer.get("predict_cpu", 0.0))
    scores["fit_cpu"] = float(answer["cpu"]) - predict_cpu
    scores["ms_row"] = 1000 * predict_cpu / len(log_density)
    row |= {key: f"{value:.5g}" for key, value in scores.items()}
    return row | {"note": str(answer.get("note", ""))}


def is_wanted(method: str, name: str, split: int) -> bool:
    done = {
        (row["set"], row["split"], row["method"])
        for row in tables.read(rows_scores.RESULTS)
    }
    if (name, str(split), method) in done:
        return False
    if method.endswith("-groups") and SETS[name].group is None:
        return False
    most = LARGEST.get(method)
    return most is None or len(load(name, split)["y"]) <= most


def main(method: str, sets: str, splits: str) -> None:
    halves = {"all": {"", "choose", "report"}, "choose": {"choose"}}
    halves |= {"report": {"report"}, "five": {"five"}}
    names = [name for name in SETS if SETS[name].half in halves.get(sets, ())]
    names = names or [name for name in sets.split(",") if SETS[name]]
    for name in names:
        own = SETS[name].splits if splits == "all" else map(int, splits.split(","))
        for split in own:
            if is_wanted(method, name, split):
                row = run(method, name, split)
                tables.append(row, rows_scores.FIELDS, rows_scores.RESULTS)
                print(*(row.get(key, "") for key in rows_scores.FIELDS), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["table"]:
            path = rows_scores.RESULTS.with_name("rows.md")
            path.write_text(rows_scores.table())
            print(path.read_text())
        case ["work", method, name, split, folder]:
            work(method, name, int(split), Path(folder))
        case [method, sets, splits]:
            main(method, sets, splits)
        case _:
            sys.exit(__doc__)
