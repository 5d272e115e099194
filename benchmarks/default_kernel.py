"""Compares the estimators' kernel with a sum of a smooth and a rough one.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/default_kernel.py --sets boston concrete --splits 0 1

`matern52` was the default when this was measured. `sum` is Matern52 + Matern12, each
with its own lengthscales. It starts where `matern52` starts first: lengthscales of √D
standard deviations and a variance of 2 in all. A kernel name also tries a smoother and
a rougher start if it trains on all rows with Gaussian noise; a kernel object has one
start. `auto` is the default today: it tries both where the noise is Gaussian.
`short sum` starts at lengthscales of 2 standard deviations and a variance of 1 in all.

Each run is a fresh process with one thread and a line of results/default_kernel.csv.
CPU seconds include predictions, and compilation unless natgrad's cache has the program
from an earlier run: of two splits, compare the seconds of the same one. A run that is
there is not made again.
"""

import os


os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NPROC="1")
os.environ["PJRT_NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import argparse  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import tables  # noqa: E402


RESULTS = Path(__file__).parent / "results" / "default_kernel.csv"
FIELDS = (
    "set",
    "kernel",
    "split",
    "rows",
    "log_density",
    "error",
    "cpu_seconds",
    "load",
    "note",
)
SMALL = ("boston", "concrete", "energy", "yacht", "wine", "pima", "banana")
SETS = (*SMALL, "kin8nm", "power", "bike")
KERNELS = ("matern52", "sum", "short sum", "auto")


def kernel_of(name: str, x: np.ndarray) -> Any:
    """What the estimator is given, in the units of the inputs."""
    from natgrad.gp import kernels

    if name in ("matern52", "auto"):
        return name
    root, variance = (2.0, 0.5) if name == "short sum" else (x.shape[1] ** 0.5, 1.0)
    deviations = x.std(0)
    lengthscale = list(root * np.where(deviations > 0, deviations, 1.0))
    smooth = kernels.Matern52(lengthscale, variance)
    return smooth + kernels.Matern12(lengthscale, variance)


def run(name: str, kernel: str, split: int) -> dict[str, Any]:
    """One line of results."""
    import natgrad.sklearn as _  # noqa: F401

    data = tables.load(name, split)
    kind = tables.SETS[name].kind if name in tables.SETS else "real"
    row = {"set": name, "kernel": kernel, "split": split, "rows": len(data["y"])}
    began = time.process_time()
    given = kernel_of(kernel, data["x"])
    answer = tables.natgrad(data, kind, split, 0.0, given)
    spent = time.process_time() - began
    scores = tables.score(answer, data["y_test"])
    row |= {key: f"{scores[key]:.5g}" for key in ("log_density", "error")}
    load = f"{os.getloadavg()[0]:.1f}"
    return row | {"cpu_seconds": f"{spent:.3g}", "load": load, "note": answer["note"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--kernels", nargs="+", default=KERNELS[:2])
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--here", action="store_true", help="runs in this process")
    arguments = parser.parse_args()
    for split in arguments.splits:
        for name in arguments.sets:
            for kernel in arguments.kernels:
                done = [
                    (r["set"], r["kernel"], r["split"]) for r in tables.read(RESULTS)
                ]
                if (name, kernel, str(split)) in done:
                    continue
                if arguments.here:
                    row = run(name, kernel, split)
                    tables.append(row, FIELDS, RESULTS)
                    print(*(row[field] for field in FIELDS), flush=True)
                    continue
                told = ["--sets", name, "--kernels", kernel, "--splits", str(split)]
                subprocess.run([sys.executable, __file__, "--here", *told])


if __name__ == "__main__":
    main()
