"""Whether the ELBO of a fit ever ends below an earlier record.

    export NATGRAD_DATA=folder-of-parquet-files
    python experiments/monotone.py [--fits 200]
    python experiments/monotone.py --batches [--fits 100]

Each fit has random rows of one of twelve data sets, 30 inducing inputs, one of the
likelihoods that suit the target and one of two kernels: 256 rows, all seen at every
step, or 2,000 (fewer where there are fewer) in batches of 256, whose records are
smoothed: means of the ELBO over 400 steps. Tables have eight columns: the first eight
of their own, or zeros where they have fewer, so that few programs are compiled. Writes
results/monotone.csv or results/monotone_batches.csv, and prints how many failed or
fell.
"""

import argparse
import csv
import itertools
import math
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd


jax.config.update("jax_enable_x64", True)

from natgrad import gp  # noqa: E402
from natgrad.gp import kernels, likelihoods, means  # noqa: E402


RESULTS = Path(__file__).parent / "results"
ROWS, COLUMNS, INDUCING = 256, 8, 30
BATCH_ROWS, BATCH, EVERY, SMOOTHED = 2000, 256, 20, 20
"""Rows, batch size, steps in a record and records in a mean of a fit on batches."""

NEAR = 0.01
"""Nats per row that a fit on batches may end below its best."""

REAL = ("Gaussian", "StudentT", "HeteroskedasticGaussian")
SETS = {
    **dict.fromkeys(
        ("energy", "boston", "concrete", "kin8nm", "power", "naval", "protein"), REAL
    ),
    "flights_nyc2013": REAL,
    "elevators": REAL,
    "pima": ("Bernoulli",),
    "banana": ("Bernoulli",),
    "bike": ("NegativeBinomial",),
}
KERNELS = ("Matern52", "RBF")


def table(
    name: str, seed: int, likelihood: str, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scaled rows of a data set, drawn by the seed."""
    path = Path(os.environ["NATGRAD_DATA"]) / f"{name}.parquet"
    frame = pd.read_parquet(path)
    frame = frame.sample(min(rows, len(frame)), random_state=seed)
    x = frame.drop(columns="target").to_numpy(float)[:, :COLUMNS]
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    x = np.pad(x, [(0, 0), (0, COLUMNS - x.shape[1])])
    y = frame["target"].to_numpy(float)
    return x, (y - y.mean()) / y.std() if likelihood in REAL else y


def model_of(x: np.ndarray, y: np.ndarray, likelihood: str, kernel: str) -> gp.SparseGP:
    root = np.full(COLUMNS, math.sqrt(COLUMNS))
    mean = means.Constant(math.log(max(y.mean(), 1e-3)))
    return gp.initialize(
        x,
        getattr(likelihoods, likelihood)(),
        INDUCING,
        kernel=getattr(kernels, kernel)(root, 2.0),
        mean=mean if likelihood == "NegativeBinomial" else None,
    )


def run(
    name: str, likelihood: str, kernel: str, seed: int, is_batched: bool
) -> dict[str, Any]:
    """One fit: its steps, where it ended, and how far below its best."""
    row = {"set": name, "likelihood": likelihood, "kernel": kernel, "seed": seed}
    x, y = table(name, seed, likelihood, BATCH_ROWS if is_batched else ROWS)
    options = {"batch_size": BATCH, "log_every": EVERY} if is_batched else {}
    model = model_of(x, y, likelihood, kernel)
    try:
        fitted = gp.fit(model, (x, y), progress=False, **options)
    except Exception as error:
        return row | {"reason": f"failed: {type(error).__name__}"}
    objectives = np.array(fitted.history.column("objective"))
    if is_batched:
        window = np.ones(SMOOTHED) / SMOOTHED
        objectives = np.convolve(objectives, window, mode="valid")
    return row | {
        "steps": fitted.history[-1].step,
        "elbo": f"{objectives[-1]:.6f}",
        "below_best": f"{objectives.max() - objectives[-1]:.3g}",
        "reason": fitted.history.reason,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int)
    parser.add_argument("--batches", action="store_true")
    told = parser.parse_args()
    count = told.fits or (100 if told.batches else 200)
    cases = [
        (name, likelihood, kernel)
        for name, kinds in SETS.items()
        for likelihood, kernel in itertools.product(kinds, KERNELS)
    ]
    # Cases of one program together, so that it is compiled once and then dropped.
    order = sorted(cases, key=lambda case: case[1:])
    each = math.ceil(count / len(cases))
    wanted = [(*case, seed) for case in order for seed in range(each)]
    rows = [run(*case, told.batches) for case in wanted]
    out = RESULTS / ("monotone_batches.csv" if told.batches else "monotone.csv")
    with out.open("w", newline="") as file:
        fields = ["set", "likelihood", "kernel", "seed", "steps", "elbo"]
        writer = csv.DictWriter(file, [*fields, "below_best", "reason"])
        writer.writeheader()
        writer.writerows(rows)
    failed = sum("failed" in row["reason"] for row in rows)
    near = NEAR if told.batches else 0
    fell = sum(float(row.get("below_best", 0)) > near for row in rows)
    ended = sum(row["reason"] == "converged" for row in rows)
    print(f"{len(rows)} fits: {failed} failed, {fell} ended more than {near:g} nats")
    print("per row below an earlier record,")
    print(f"{ended} converged by themselves")


if __name__ == "__main__":
    main()
