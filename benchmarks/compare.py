"""natgrad's estimators beside what else one would fit to a table, all by default.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/compare.py                  # all sets and methods, for hours
    python benchmarks/compare.py energy pima --methods natgrad linear --splits 0 1
    python benchmarks/compare.py --table          # results/compare.md and the docs

Every run is one line of results/compare.csv, also one that fails or takes too long, and
a run that is there is not made again. Each is a process of one thread. Peers live in
environments of their own, named by `--python-peers` (scikit-learn, NGBoost, PyTorch and
GPyTorch), `--python-gpflow` or NATGRAD_PYTHON_PEERS, NATGRAD_PYTHON_GPFLOW.

`natgrad n_inducing=500` is a method too: options of the estimator may follow its name,
and `kind=real`, for counts taken as real numbers, that of any. Such runs stand in a
table of their own.
"""

import argparse
import ast
import csv
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import compare_table
import numpy as np


HERE = Path(__file__).parent
LEVELS = np.arange(1, 10) / 10
"""Nominal coverage of the central intervals whose coverage is counted."""

BINS = 10
"""Of confidence, for the calibration of classes."""


# Data


class Set(NamedTuple):
    file: str
    kind: str
    splits: int = 5


SETS = {
    "energy": Set("energy", "real"),
    "boston": Set("boston", "real"),
    "pima": Set("pima", "binary"),
    "concrete": Set("concrete", "real"),
    "wine": Set("wine_red", "ordinal"),
    "banana": Set("banana", "binary"),
    "kin8nm": Set("kin8nm", "real"),
    "power": Set("power", "real"),
    "naval": Set("naval", "real"),
    "bike": Set("bike", "count"),
    "protein": Set("protein", "real"),
    "flights": Set("flights_nyc2013", "robust"),
    "mnist": Set("mnist", "classes", splits=1),
}


def load(name: str, split: int) -> dict[str, np.ndarray]:
    """Nine tenths to train on and a tenth to test; mnist has its own split.

    Labels are 0, 1, 2, ..., in their order.
    """
    folder, it = Path(os.environ["NATGRAD_DATA"]), SETS[name]
    if name == "mnist":
        with np.load(folder / "mnist.npz") as file:
            pixels = lambda key: file[key].reshape(-1, 784).astype(np.float32) / 255
            x, x_test = pixels("x_train"), pixels("x_test")
            y, y_test = (file[key].astype(int) for key in ("y_train", "y_test"))
        return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    import pandas as pd

    frame = pd.read_parquet(folder / f"{it.file}.parquet")
    x, y = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
    if it.kind in ("binary", "ordinal"):
        y = np.unique(y, return_inverse=True)[1]
    order = np.random.default_rng(split).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    return {"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test]}


# Scores


def score(answer: Any, y: np.ndarray) -> dict[str, float]:
    """Log-likelihood, RMSE or error rate, and calibration error of the test rows."""
    if "probabilities" in answer:
        return score_classes(answer["probabilities"], y)
    # The interval between the quantiles has both its ends, which matters for counts.
    reaches = answer["cdf"][:, None] >= (1 - LEVELS) / 2
    inside = reaches & (answer["cdf_below"][:, None] <= (1 + LEVELS) / 2)
    return {
        "log_likelihood": answer["log_density"].mean(),
        "error": np.sqrt(np.mean((answer["mean"] - y) ** 2)),
        "calibration": np.abs(inside.mean(0) - LEVELS).mean(),
    }


def score_classes(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    # The same clipping as scikit-learn's log_loss: some answer exactly 0.
    smallest = np.finfo(probabilities.dtype).eps
    given = np.clip(probabilities[np.arange(len(y)), y], smallest, 1)
    is_right = probabilities.argmax(1) == y
    confidence = probabilities.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        abs(confidence[bins == i].sum() - is_right[bins == i].sum())
        for i in range(BINS)
    ]
    return {
        "log_likelihood": np.log(given).mean(),
        "error": 1 - is_right.mean(),
        "calibration": sum(gaps) / len(y),
    }


# natgrad's own entry


LIKELIHOODS = {
    "real": "auto",
    "robust": "student-t",
    "count": "negative-binomial",
    "binary": "auto",
    "classes": "auto",
}


def natgrad(data: Any, kind: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """The estimator of the kind, told nothing else but the likelihood."""
    from natgrad import sklearn as estimators

    options = {"random_state": seed, "verbose": False} | options
    estimator: Any
    if kind == "ordinal":
        estimator = estimators.GPOrdinal(**options)
    elif kind in ("binary", "classes"):
        estimator = estimators.GPClassifier(**options)
    else:
        options = {"likelihood": LIKELIHOODS[kind]} | options
        estimator = estimators.GPRegressor(**options)
    estimator.fit(data["x"], data["y"])
    x, y = data["x_test"], data["y_test"]
    noise = type(estimator.model_.likelihood).__name__
    said = f"{noise}, M {estimator.n_inducing_}, {estimator.n_iter_} steps"
    if not estimator.converged_:
        said += f", {estimator.message_}"
    if kind in ("binary", "classes", "ordinal"):
        probabilities = np.zeros([len(y), int(max(y.max(), data["y"].max())) + 1])
        probabilities[:, estimator.classes_.astype(int)] = estimator.predict_proba(x)
        return {"probabilities": probabilities, "note": said}
    cdf = lambda y: cdf_of(estimator, x, y)
    return {
        "log_density": estimator.log_density(x, y),
        "mean": estimator.predict(x),
        "cdf": cdf(y),
        "cdf_below": cdf(y - 1) if kind == "count" else cdf(y),
        "note": said,
    }


def cdf_of(estimator: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The predictive distribution function at each target."""
    import jax

    from natgrad import gp

    scaled = (x - estimator.x_mean_) / estimator.x_scale_
    standard = (y - estimator.y_mean_) / estimator.y_scale_
    with jax.enable_x64(True):
        return gp.predictor(estimator.model_).cdf(scaled, standard)


# Runs


PEERS = ("exact-gp", "boosting", "linear", "gpytorch", "gpflow", "ngboost")
THREADS = dict.fromkeys(
    [
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "NPROC",
    ],
    "1",
)
EXACT_LIMIT = {"real": 2000, "binary": 1500, "ordinal": 1500}
"""Rows up to which scikit-learn's exact Gaussian processes are tried."""

NOT_INSTALLED = 3


def work(method: str, kind: str, seed: int, folder: Path, limit: float) -> None:
    """What the process of one run does: fits, predicts, and writes the answer."""
    with np.load(folder / "data.npz") as file:
        data = dict(file)
    name, *rest = method.split()
    options: dict[str, Any] = {}
    for option in rest:
        key, value = option.split("=")
        options[key] = ast.literal_eval(value) if value[0] in "0123456789" else value
    kind = options.pop("kind", kind)
    try:
        if name == "natgrad":
            import natgrad.sklearn as _  # noqa: F401

            call = lambda: natgrad(data, kind, seed, options)
        else:
            import compare_peers

            entry = compare_peers.entry(name)
            call = lambda: entry(data, kind, seed, 0.8 * limit)
    except ImportError as error:
        print(f"{error.name} is not installed for {sys.executable}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    began, began_cpu = time.perf_counter(), time.process_time()
    answer = call()
    answer["seconds"] = time.perf_counter() - began
    answer["cpu_seconds"] = time.process_time() - began_cpu
    np.savez(folder / "answer.npz", **answer)


def run(
    name: str, method: str, split: int, python: str, limit: float
) -> dict[str, Any] | None:
    """One line of results, or nothing if the method is not installed."""
    data = load(name, split)
    row = {"set": name, "method": method, "split": split, "rows": len(data["y"])}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **data)  # pyright: ignore
        told = json.dumps([method, SETS[name].kind, split, folder, limit])
        # Time is counted by the processor, so that it does not matter what else runs.
        ended = subprocess.run(
            [python, __file__, "--work", told],
            env=os.environ
            | THREADS
            | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"},
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_CPU, (int(limit), int(limit) + 5)
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        if ended.returncode == NOT_INSTALLED:
            print(ended.stderr.strip().splitlines()[-1])
            return None
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or ["no message"]
            reason = f"failed: {lines[-1][:200]}"
            if ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                reason = f"over {limit / 60:g} min"
            return row | {"note": reason}
        with np.load(Path(folder) / "answer.npz") as answer:
            scores = score(answer, data["y_test"])
            if not np.isfinite(scores["log_likelihood"]):
                return row | {"note": "failed: its log-likelihood is not finite"}
            row |= {k: f"{v:.5g}" for k, v in scores.items()}
            row |= {k: f"{answer[k]:.3g}" for k in ("seconds", "cpu_seconds")}
            return row | {"note": str(answer["note"])}


def is_wanted(name: str, method: str) -> bool:
    if method != "exact-gp":
        return True
    return load(name, 0)["x"].shape[0] <= EXACT_LIMIT.get(SETS[name].kind, 0)


def append(row: dict[str, Any], path: Path) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, compare_table.FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(SETS), metavar="set")
    parser.add_argument("--methods", nargs="+", default=["natgrad", *PEERS])
    parser.add_argument("--splits", nargs="+", type=int, default=range(5))
    parser.add_argument("--limit", type=float, default=900, help="seconds of a run")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    for peer in ("peers", "gpflow"):
        variable = f"NATGRAD_PYTHON_{peer.upper()}"
        default = os.environ.get(variable, sys.executable)
        parser.add_argument(f"--python-{peer}", default=default)
    arguments = parser.parse_args()
    if arguments.work:
        method, kind, split, folder, limit = json.loads(arguments.work)
        return work(method, kind, split, Path(folder), limit)
    if arguments.table:
        return compare_table.write(list(SETS))
    wanted = itertools.product(arguments.splits, arguments.sets, arguments.methods)
    for split, name, method in wanted:
        rows = compare_table.read()
        done = {(row["set"], row["method"], int(row["split"])) for row in rows}
        is_done = (name, method, split) in done or split >= SETS[name].splits
        if is_done or not is_wanted(name, method):
            continue
        python = {"natgrad": sys.executable, "gpflow": arguments.python_gpflow}.get(
            method.split()[0], arguments.python_peers
        )
        row = run(name, method, split, python, arguments.limit)
        if row is not None:
            append(row, compare_table.RESULTS)
            print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
