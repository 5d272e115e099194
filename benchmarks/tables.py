"""Fits every method to every table, one process per run, and scores held-out rows.

Every run is one line of results/tables.csv, also one that fails or takes too long. A
run that is there is not made again. Each process has one thread, and a fit may take 600
seconds of the processor.
"""

import csv
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

import environments
import numpy as np
from answers import CLASSES


RESULTS = Path(__file__).parent / "results" / "tables.csv"
FIELDS = (
    "set",
    "method",
    "split",
    "rows",
    "log_density",
    "error",
    "calibration",
    "coverage_50",
    "coverage_90",
    "seconds",
    "cpu_seconds",
    "warm_seconds",
    "warm_cpu_seconds",
    "load",
    "note",
)
LIMIT = 600
"""Seconds of the processor that one fit with its predictions may take."""

LEVELS = np.arange(1, 10) / 10
"""Nominal coverage of the central intervals whose coverage is counted."""

BINS = 10
"""Of confidence, for the calibration of classes."""


# Data


class Set(NamedTuple):
    file: str
    kind: str
    splits: tuple[int, ...] = (20, 21, 22, 23, 24)
    has_copies: bool = True


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
    "flights": Set("flights_nyc2013", "robust", (20, 21)),
    "mnist": Set("mnist", "classes", (20,)),
}
DISTINCT = {"wine, distinct": Set("wine_red", "ordinal", has_copies=False)}
"""Sets without rows that repeat others; they count in no ranking."""

ALL = SETS | DISTINCT
SMALL = ("energy", "boston", "pima", "concrete", "wine", "banana")


def load(name: str, split: int) -> dict[str, np.ndarray]:
    """Nine tenths to train on and a tenth to test; mnist has its own split.

    Labels are 0, 1, 2, ..., in their order.
    """
    folder = Path(os.environ["NATGRAD_DATA"])
    if name == "mnist":
        with np.load(folder / "mnist.npz") as file:
            pixels = lambda key: file[key].reshape(-1, 784).astype(np.float32) / 255
            x, x_test = pixels("x_train"), pixels("x_test")
            y, y_test = (file[key].astype(int) for key in ("y_train", "y_test"))
        return {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    import pandas as pd

    file, kind, _, has_copies = ALL.get(name, Set(name, "real"))
    frame = pd.read_parquet(folder / f"{file}.parquet")
    if not has_copies:
        frame = frame.drop_duplicates()
    x, y = frame.drop(columns="target").to_numpy(), frame["target"].to_numpy()
    if kind in ("binary", "ordinal"):
        y = np.unique(y, return_inverse=True)[1]
    order = np.random.default_rng(split).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    return {"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test]}


# Scores


def score(answer: Any, y: np.ndarray) -> dict[str, float]:
    """Log density, RMSE or error rate, calibration and coverage of the test rows."""
    if "probabilities" in answer:
        return score_classes(answer["probabilities"], y)
    # The interval between the quantiles has both its ends, which matters for counts.
    levels = np.append(LEVELS, 0.5)
    reaches = answer["cdf"][:, None] >= (1 - levels) / 2
    inside = reaches & (answer["cdf_below"][:, None] <= (1 + levels) / 2)
    shares = inside.mean(0)
    return {
        "log_density": answer["log_density"].mean(),
        "error": np.sqrt(np.mean((answer["mean"] - y) ** 2)),
        "calibration": np.abs(shares[:-1] - LEVELS).mean(),
        "coverage_50": shares[-1],
        "coverage_90": shares[-2],
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
        "log_density": np.log(given).mean(),
        "error": 1 - is_right.mean(),
        "calibration": sum(gaps) / len(y),
    }


# natgrad's own entry


LIKELIHOODS = {"real": "auto", "robust": "student-t", "count": "negative-binomial"}


def natgrad(
    data: Any, kind: str, seed: int, _: float, kernel: Any = "auto"
) -> dict[str, Any]:
    """The estimator of the kind, with nothing set but the likelihood.

    Ordered classes are classes, as for the rivals; see ordinal.py.
    """
    from natgrad import sklearn as estimators

    options: dict[str, Any] = {"random_state": seed, "verbose": False}
    options["kernel"] = kernel
    estimator: Any
    if kind in CLASSES:
        estimator = estimators.GPClassifier(**options)
    else:
        estimator = estimators.GPRegressor(likelihood=LIKELIHOODS[kind], **options)
    estimator.fit(data["x"], data["y"])
    x, y = data["x_test"], data["y_test"]
    noise = type(estimator.model_.likelihood).__name__
    note = f"{noise}, M {estimator.n_inducing_}, {estimator.n_iter_} steps"
    if not estimator.converged_:
        note += f", {estimator.message_}"
    if kind in CLASSES:
        probabilities = np.zeros([len(y), int(max(y.max(), data["y"].max())) + 1])
        probabilities[:, estimator.classes_.astype(int)] = estimator.predict_proba(x)
        return {"probabilities": probabilities, "note": note}
    cdf = lambda y: cdf_of(estimator, x, y)
    return {
        "log_density": estimator.log_density(x, y),
        "mean": estimator.predict(x),
        "cdf": cdf(y),
        "cdf_below": cdf(y - 1) if kind == "count" else cdf(y),
        "note": note,
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


ENVIRONMENTS = {
    "natgrad": "natgrad",
    "exact-gp": "trees",
    "boosting": "trees",
    "lightgbm": "trees",
    "ngboost": "trees",
    "linear": "trees",
    "gpytorch": "gpytorch",
    "gpflow": "gpflow",
    "gpjax": "gpjax",
}
"""The environment of each method."""

TITLES = {
    "natgrad": "natgrad",
    "exact-gp": "scikit-learn GP",
    "boosting": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "ngboost": "NGBoost",
    "linear": "linear",
    "gpytorch": "GPyTorch",
    "gpflow": "GPflow",
    "gpjax": "GPJax",
}

ONE_THREAD = dict.fromkeys(
    [
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "NPROC",
        "PJRT_NPROC",
    ],
    "1",
) | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}
EXACT_LIMIT = {"real": 2000, "binary": 1500}
"""Rows up to which scikit-learn's exact Gaussian processes are tried."""

NOT_OFFERED = {"gpjax": ("ordinal", "classes")}
"""Targets for which a library has no likelihood."""


def is_wanted(name: str, method: str) -> bool:
    kind = ALL[name].kind
    if method == "exact-gp":
        rows = load(name, ALL[name].splits[0])["x"].shape[0]
        return rows <= EXACT_LIMIT.get(kind, 0)
    return kind not in NOT_OFFERED.get(method, ())


def work(method: str, kind: str, seed: int, folder: Path, is_first: bool) -> None:
    """What the process of a run does: fits, predicts, and writes the answer.

    The first split is fitted twice, unless that takes long; the second fit is the one
    of a warm process.
    """
    with np.load(folder / "data.npz") as file:
        data = dict(file)
    if method == "natgrad":
        import natgrad.sklearn as _  # noqa: F401

        entry = natgrad
    else:
        import rivals

        entry = rivals.entry(method)
    names = ("", "warm_") if is_first else ("",)
    for name in names:
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(time.process_time()) + LIMIT
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = entry(data, kind, seed, 0.8 * LIMIT)
        answer[f"{name}seconds"] = time.perf_counter() - began
        answer[f"{name}cpu_seconds"] = time.process_time() - began_cpu
        np.savez(folder / f"{name}answer.npz", **answer)
        if answer[f"{name}cpu_seconds"] > LIMIT / 10:
            break


def run(name: str, method: str, split: int) -> dict[str, Any]:
    """One line of results."""
    data = load(name, split)
    row = {"set": name, "method": method, "split": split, "rows": len(data["y"])}
    row["load"] = f"{os.getloadavg()[0]:.1f}"
    python = environments.python_of(ENVIRONMENTS[method])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        np.savez(folder / "data.npz", **data)  # pyright: ignore
        is_first = split == ALL[name].splits[0]
        told = json.dumps([method, ALL[name].kind, split, made, is_first])
        command = [python, str(Path(__file__).parent / "run.py"), "work", told]
        ended = subprocess.run(
            command, env=os.environ | ONE_THREAD, stderr=subprocess.PIPE, text=True
        )
        if not (folder / "answer.npz").exists():
            lines = ended.stderr.strip().splitlines() or ["no message"]
            reason = f"failed: {lines[-1][:200]}"
            if ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                reason = f"over {LIMIT / 60:g} min"
            return row | {"note": reason}
        with np.load(folder / "answer.npz") as answer:
            scores = score(answer, data["y_test"])
            times = {k: float(answer[k]) for k in ("seconds", "cpu_seconds")}
            note = str(answer["note"])
        if (folder / "warm_answer.npz").exists():
            with np.load(folder / "warm_answer.npz") as answer:
                keys = ("warm_seconds", "warm_cpu_seconds")
                times |= {key: float(answer[key]) for key in keys}
    if not np.isfinite(scores["log_density"]):
        return row | {"note": "failed: its log density is not finite"}
    row |= {key: f"{value:.5g}" for key, value in scores.items()}
    return row | {key: f"{value:.3g}" for key, value in times.items()} | {"note": note}


def read(path: Path = RESULTS) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, Any], fields: tuple[str, ...], path: Path) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def main(sets: list[str], methods: list[str], splits: list[int]) -> None:
    """All runs that are wanted and missing, split by split."""
    for split in splits or (20, 21, 22, 23, 24):
        for name in sets or ALL:
            for method in methods or ENVIRONMENTS:
                key = (name, method, str(split))
                done = {(row["set"], row["method"], row["split"]) for row in read()}
                is_open = split in ALL[name].splits and key not in done
                if is_open and is_wanted(name, method):
                    row = run(name, method, split)
                    append(row, FIELDS, RESULTS)
                    print(*(row.get(field, "") for field in FIELDS), flush=True)


def worker(told: str) -> None:
    """The process of one run."""
    method, kind, split, folder, is_first = json.loads(told)
    work(method, kind, split, Path(folder), is_first)


if __name__ == "__main__":
    sys.exit("use benchmarks/run.py")
