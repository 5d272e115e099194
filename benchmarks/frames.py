"""Fits tables as they are, with categories, gaps and dates, and compares with trees.

    python benchmarks/frames.py [SET ...]

natgrad and scikit-learn's HistGradientBoosting get the same frame, as pandas reads it;
for the trees, text becomes pandas categories. One split: the official one of adult, a
random fifth to test on elsewhere. A Gaussian around the trees' mean has the standard
deviation of the residuals of a tenth that was held out. Every fit is one line of
results/frames.csv; a fit that is there is not made again.
"""

import csv
import os
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from natgrad.metrics import evaluate, reliability
from natgrad.sklearn import GPClassifier, GPRegressor


RESULTS = Path(__file__).parent / "results" / "frames.csv"
FIELDS = (
    "set",
    "method",
    "rows",
    "log_density",
    "error",
    "calibration",
    "coverage_90",
    "seconds",
    "cpu_seconds",
    "note",
)
TREES = {"max_iter": 1000, "early_stopping": True, "random_state": 0}


class Set(NamedTuple):
    file: str
    target: str
    is_classes: bool
    rows: int | None = None  # to train on, if not all


SETS = {
    "titanic": Set("titanic", "survived", True),
    "seattle_weather": Set("seattle_weather", "weather", True),
    "diamonds": Set("diamonds", "price", False),
    "adult": Set("adult", "target", True),
    "flights": Set("flights_nyc2013", "target", False),
    "census_income": Set("census_income", "target", True),
}


def load(name: str):
    """Training and test rows, each a frame and its targets."""
    found = SETS[name]
    folder = Path(os.environ["NATGRAD_DATA"])
    frame = pd.read_parquet(folder / f"{found.file}.parquet")
    rng = np.random.default_rng(0)
    if "part" in frame:
        is_test = (frame.pop("part") != "train").to_numpy()
    else:
        is_test = rng.permutation(len(frame)) < len(frame) // 5
    y = frame.pop(found.target)
    y = y.astype(str) if found.is_classes else y.astype(float)
    train = np.flatnonzero(~is_test)
    if found.rows is not None:
        train = np.sort(rng.choice(train, found.rows, replace=False))
    y = y.to_numpy()
    return frame.iloc[train], y[train], frame[is_test], y[is_test]


def natgrad(x, y, x_test, y_test, is_classes: bool) -> dict:
    model = (GPClassifier if is_classes else GPRegressor)(verbose=0).fit(x, y)
    found = evaluate(model, x_test, y_test)
    likelihood = type(model.model_.likelihood).__name__
    columns = len(model.schema_.features)
    return {
        "log_density": found["log_density"],
        "error": found["error"] if is_classes else found["rmse"],
        "calibration": found["calibration_error"],
        "coverage_90": found.get("coverage_90"),
        "note": f"{likelihood}, {columns} columns, M {model.n_inducing_}, "
        f"{model.n_iter_} steps",
    }


def trees(x, y, x_test, y_test, is_classes: bool) -> dict:
    x, x_test = map(with_categories, (x, x_test))
    if is_classes:
        model = HistGradientBoostingClassifier(**TREES).fit(x, y)
        shares = model.predict_proba(x_test)
        place = np.searchsorted(model.classes_, y_test)
        bins = reliability(model.classes_, shares, y_test)
        gaps = np.abs(bins.observed - bins.predicted)
        given = shares[np.arange(len(place)), place]
        return {
            "log_density": np.log(np.clip(given, 1e-15, 1)).mean(),
            "error": np.mean(shares.argmax(1) != place),
            "calibration": gaps @ bins.rows / len(place),
            "note": f"{model.n_iter_} trees",
        }
    is_held = np.random.default_rng(1).permutation(len(y)) < len(y) // 10
    first = HistGradientBoostingRegressor(**TREES).fit(x[~is_held], y[~is_held])
    scale = np.sqrt(np.mean((y[is_held] - first.predict(x[is_held])) ** 2))
    model = HistGradientBoostingRegressor(**TREES).fit(x, y)
    mean = model.predict(x_test)
    distance = np.abs(stats.norm.cdf(y_test, mean, scale) - 0.5) * 2
    levels = np.linspace(0.05, 0.95, 19)
    shares = np.array([np.mean(distance <= level) for level in levels])
    return {
        "log_density": stats.norm.logpdf(y_test, mean, scale).mean(),
        "error": np.sqrt(np.mean((y_test - mean) ** 2)),
        "calibration": np.abs(shares - levels).mean(),
        "coverage_90": np.mean(distance <= 0.9),
        "note": f"{model.n_iter_} trees, Gaussian",
    }


def with_categories(frame: pd.DataFrame) -> pd.DataFrame:
    """Text as categories, and dates as days, which the trees take."""
    frame = frame.copy()
    for name, dtype in frame.dtypes.items():
        if str(dtype) in ("str", "object", "string"):
            frame[name] = frame[name].astype("category")
        elif dtype.kind == "M":
            frame[name] = (frame[name] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return frame


METHODS = {"boosting": trees, "natgrad": natgrad}


def run(name: str, method: str) -> dict:
    data, found = load(name), SETS[name]
    began, cpu = time.perf_counter(), time.process_time()
    scores = METHODS[method](*data, found.is_classes)
    shown = {
        key: value if isinstance(value, str | None) else f"{value:.4f}"
        for key, value in scores.items()
    }
    return shown | {
        "set": name,
        "method": method,
        "rows": len(data[1]),
        "seconds": f"{time.perf_counter() - began:.0f}",
        "cpu_seconds": f"{time.process_time() - cpu:.0f}",
    }


def main(names: list[str]) -> None:
    there = []
    if RESULTS.exists():
        with RESULTS.open() as file:
            there = [(row["set"], row["method"]) for row in csv.DictReader(file)]
    for name in names or SETS:
        for method in METHODS:
            if (name, method) in there:
                continue
            row = run(name, method)
            print(row, flush=True)
            is_new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
