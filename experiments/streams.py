"""Sorted tables in pieces that come one after another, against all rows at once.

    export NATGRAD_DATA=folder-of-parquet-files
    python experiments/streams.py [TABLE ...] [--seeds N] [--methods METHOD ...]

Each table is sorted by its first input, and a tenth of its rows, 500 of banana, are
scored: log density per row, in nats. `fixed` updates only the posterior of a model of
the first piece, by `gp.update`. `dual` is the memory-based dual Gaussian process of
Chang et al. (2023), from the same first piece: `streams_rival.py`. `double`, which runs
only if you ask for it, is `pieces` with twice the inducing inputs. Every run is one
line of results/streams.csv; a run that is there is not made again. Seconds are CPU
seconds. results/streams.md has the means over the seeds.
"""

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import streams_rival

from natgrad import gp
from natgrad.errors import InputWarning
from natgrad.sklearn import GPClassifier, GPRegressor
from natgrad.sklearn._double import in_double


RESULTS = Path(__file__).parent / "results/streams.csv"
FIELDS = ("table", "seed", "method", "pieces", "inducing", "log_density", "seconds")
TABLES = {
    "banana": (10, 50, GPClassifier),
    "power": (50, 200, GPRegressor),
    "elevators": (50, 200, GPRegressor),
    "bike": (50, 200, GPRegressor),
    "adult": (50, 200, GPClassifier),
}
"""Of each table: pieces, inducing inputs, and the estimator. Noise is Gaussian, as the
first piece and all rows may choose differently."""

METHODS = ("all", "pieces", "fixed", "dual")

KEPT = 1000
"""Rows in memory at the end, of `pieces` and of `dual`."""


def rows_of(name: str, seed: int) -> tuple:
    """Rows to learn from, sorted by the first input, and rows to score."""
    x = pd.read_parquet(Path(os.environ["NATGRAD_DATA"]) / f"{name}.parquet")
    y = x.pop("target")
    x = x.drop(columns="part") if name == "adult" else x.astype(float)
    shuffled = np.random.default_rng(seed).permutation(len(y))
    held_out = 500 if name == "banana" else len(y) // 10
    test, train = shuffled[:held_out], shuffled[held_out:]
    train = train[:2000] if name == "banana" else train
    train = train[np.argsort(x.iloc[train, 0].to_numpy(), kind="stable")]
    return x.iloc[train], y.iloc[train], x.iloc[test], y.iloc[test]


@in_double
def posterior_alone(model, x, y) -> None:
    """Updates q, and nothing else."""
    numbers = model._numbers(np.asarray(y))
    rows = (model._scaled(model._rows(x).x), model._standard(numbers))
    model._set_model(gp.update(model.model_, rows))


@in_double
def by_dual(model, pieces: int) -> None:
    """Has an estimator with its first piece go on by the other rule."""
    rows, limit = model._online, model.n_inducing
    memory = KEPT // pieces
    model._online = streams_rival.begun(model.model_, rows, limit, memory)


def run(name: str, seed: int, method: str) -> dict:
    pieces, inducing, kind = TABLES[name]
    inducing *= 2 if method == "double" else 1
    x, y, test_x, test_y = rows_of(name, seed)
    likelihood = "gaussian" if kind is GPRegressor else "auto"
    model = kind(likelihood, n_inducing=inducing, random_state=seed, verbose=0)
    began = time.process_time()
    classes = {"classes": np.unique(y)} if kind is GPClassifier else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        if method == "all":
            model.fit(x, y)
        for place, part in enumerate(np.array_split(np.arange(len(y)), pieces)):
            if method in ("pieces", "double", "dual") or (
                method == "fixed" and not place
            ):
                model.partial_fit(x.iloc[part], y.iloc[part], **classes)
                if method == "dual" and not place:
                    by_dual(model, pieces)
            elif method == "fixed":
                posterior_alone(model, x.iloc[part], y.iloc[part])
    return {
        "table": name,
        "seed": seed,
        "method": method,
        "pieces": 1 if method == "all" else pieces,
        "inducing": model.n_inducing_,
        "log_density": round(float(model.log_density(test_x, test_y).mean()), 4),
        "seconds": round(time.process_time() - began, 1),
    }


def written(rows: list[dict]) -> None:
    """Writes the table of means."""
    lines = [
        "Held-out log density of sorted tables, nats per row: `python "
        "experiments/streams.py`\n",
        "| table | seeds | pieces | all rows | in pieces | below | fixed | dual | "
        "CPU s | CPU s, dual |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (pieces, *_) in TABLES.items():
        found = {
            method: [
                row for row in rows if (row["table"], row["method"]) == (name, method)
            ]
            for method in METHODS
        }
        if not all(found.values()):
            continue
        mean = lambda method, field="log_density": np.mean(
            [float(row[field]) for row in found[method]]  # noqa: B023
        )
        whole, parts, fixed, dual = map(mean, METHODS)
        lines.append(
            f"| {name} | {len(found['all'])} | {pieces} | {whole:.3f} | {parts:.3f} | "
            f"{whole - parts:.3f} | {fixed:.3f} | {dual:.3f} | "
            f"{mean('pieces', 'seconds'):.0f} | {mean('dual', 'seconds'):.0f} |"
        )
    for row in (row for row in rows if row["method"] == "double"):
        lines.append(
            f"\n{row['table']}, seed {row['seed']}, with {row['inducing']} inducing "
            f"inputs (`--methods double`): {float(row['log_density']):.3f} in pieces, "
            f"{float(row['seconds']):.0f} CPU s. All rows had half as many."
        )
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    asked = parser.parse_args()
    known = set()
    if RESULTS.exists():
        with RESULTS.open() as file:
            known = {tuple(row.values())[:3] for row in csv.DictReader(file)}
    for name in asked.tables:
        for seed in range(asked.seeds):
            for method in asked.methods:
                if (name, str(seed), method) in known:
                    continue
                row = run(name, seed, method)
                print(row, flush=True)
                is_new = not RESULTS.exists()
                with RESULTS.open("a", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                    if is_new:
                        writer.writeheader()
                    writer.writerow(row)
    with RESULTS.open() as file:
        written(list(csv.DictReader(file)))


if __name__ == "__main__":
    main()
