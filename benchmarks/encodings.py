"""Compares ways to encode gaps and categories, on held-out fifths of four tables.

    python benchmarks/encodings.py [SET ...]

Every fit is one line of results/encodings.csv; a fit that is there is not made again.
Gaps are zeros that cannot be (pima), as they are (adult), or made at random in a third
of the rows of two columns (titanic, diamonds). `low-rank` is a categorical kernel: each
category is a learned point in the plane, which is a linear map of its indicators.
"""

import csv
import math
import os
import sys
import time
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as arrow

from natgrad import metrics
from natgrad.data._encoding import Category
from natgrad.data._schema import Schema, infer
from natgrad.gp import kernels
from natgrad.sklearn import GPClassifier, GPRegressor


RESULTS = Path(__file__).parent / "results" / "encodings.csv"
FIELDS = (
    "set",
    "question",
    "encoding",
    "split",
    "rows",
    "log_density",
    "error",
    "cpu_s",
)
TARGETS = {
    "titanic": "survived",
    "pima": "target",
    "adult": "target",
    "diamonds": "price",
}
ROWS = 5000
RANK = 2
GAPS = ("indicator", "mean", "drop")
CATEGORIES = ("one-hot", "shared", "low-rank")
QUESTIONS = {
    "titanic": {"gaps": GAPS, "categories": CATEGORIES},
    "pima": {"gaps": GAPS},
    "adult": {"gaps": GAPS, "categories": CATEGORIES},
    "diamonds": {"gaps": GAPS, "categories": CATEGORIES},
}
SPLITS = {"titanic": range(5), "pima": range(10)}


def load(name: str, question: str, split: int):
    """Training and test rows, each a frame and its targets."""
    frame = pd.read_parquet(Path(os.environ["NATGRAD_DATA"]) / f"{name}.parquet")
    frame = frame.drop(columns="part", errors="ignore")
    rng = np.random.default_rng(split)
    frame = frame.iloc[rng.permutation(len(frame))[:ROWS]].reset_index(drop=True)
    y = frame.pop(TARGETS[name]).to_numpy()
    if name == "pima":
        never = ["plasma_glucose", "diastolic_bp", "triceps_skinfold", "insulin_2h"]
        frame[[*never, "bmi"]] = frame[[*never, "bmi"]].replace(0.0, np.nan)
    for column in {"titanic": ("age", "fare"), "diamonds": ("carat", "x")}.get(
        name, ()
    ):
        if question == "gaps":
            frame.loc[rng.random(len(frame)) < 1 / 3, column] = np.nan
    test = np.arange(len(frame)) < len(frame) // 5
    return frame[~test], y[~test], frame[test], y[test]


class Grouped(kernels.AbstractKernel):
    """A kernel after a linear map of each category's indicators to a few inputs.

    Without `points`, the map is a lengthscale that all values of a category share.
    """

    kernel: kernels.AbstractKernel
    points: list
    groups: tuple = eqx.field(static=True)

    def __call__(self, x, z):
        mapped = self._mapped(x)
        return self.kernel(mapped, mapped if x is z else self._mapped(z))

    def diag(self, x):
        return self.kernel.diag(self._mapped(x))

    def _mapped(self, x):
        parts, maps = [], iter(self.points)
        for is_category, start, end in self.groups:
            part = x[:, start:end]
            parts.append(part @ next(maps) if is_category else part)
        return jnp.concatenate(parts, axis=1)


class Shared(kernels.AbstractKernel):
    """A kernel whose lengthscales are shared by the columns of an input."""

    logs: jax.Array
    log_variance: jax.Array
    places: tuple = eqx.field(static=True)

    def __call__(self, x, z):
        lengths = jnp.exp(self.logs)[jnp.asarray(self.places)]
        return kernels.Matern52(1.0)(
            x / lengths, x / lengths if x is z else z / lengths
        ) * (jnp.exp(self.log_variance))

    def diag(self, x):
        return jnp.broadcast_to(jnp.exp(self.log_variance), x.shape[:1])


def kernel_for(schema: Schema, encoding: str, split: int):
    ends = np.cumsum([len(column.features) for column in schema.columns])
    starts = [0, *ends[:-1]]
    kinds = [isinstance(column, Category) for column in schema.columns]
    if encoding == "shared":
        places = np.repeat(np.arange(len(kinds)), np.diff([0, *ends]))
        number = len(kinds)
        logs = jnp.full(number, math.log(number) / 2)
        return Shared(logs, jnp.asarray(math.log(2.0)), tuple(places.tolist()))
    rng = np.random.default_rng(split)
    groups = tuple(zip(kinds, map(int, starts), map(int, ends), strict=True))
    points = [jnp.asarray(rng.normal(size=(e - s, RANK))) for k, s, e in groups if k]
    width = sum(RANK if k else e - s for k, s, e in groups)
    inner = kernels.Matern52(np.full(width, math.sqrt(width)), 2.0)
    return Grouped(inner, points, groups)


def fitted(name: str, question: str, encoding: str, split: int) -> dict:
    x, y, x_test, y_test = load(name, question, split)
    make = GPRegressor if name == "diamonds" else GPClassifier
    began = time.process_time()
    table = arrow.Table.from_pandas(x, preserve_index=False)
    test = arrow.Table.from_pandas(x_test, preserve_index=False)
    nulls = "indicator" if question == "categories" or encoding == "drop" else encoding
    schema = infer(table, table.column_names, nulls)
    if encoding == "drop":
        whole = x.notna().all(axis=1).to_numpy()
        table, y = table.filter(arrow.array(whole)), y[whole]
        schema = infer(table, table.column_names, "mean")
    if encoding in ("shared", "low-rank"):
        # Such a kernel sees the inputs as they are, so numbers are scaled before.
        encoded, given = schema.encode(table).x, schema.encode(test).x
        places = np.concatenate(
            [[isinstance(c, Category)] * len(c.features) for c in schema.columns]
        )
        centre = np.where(places, 0.0, encoded.mean(0))
        scale = np.where(places, 1.0, np.maximum(encoded.std(0), 1e-9))
        kernel = kernel_for(schema, encoding, split)
        model = make(kernel=kernel, verbose=0).fit((encoded - centre) / scale, y)
        scores = metrics.evaluate(model, (given - centre) / scale, y_test)
    else:
        model = make(verbose=0)._fit(table, y, schema=schema)
        scores = metrics.evaluate(model, test, y_test)
    return {
        "set": name,
        "question": question,
        "encoding": encoding,
        "split": split,
        "rows": len(y),
        "log_density": f"{scores['log_density']:.4f}",
        "error": f"{scores.get('error', scores.get('rmse')):.4f}",
        "cpu_s": f"{time.process_time() - began:.0f}",
    }


def main(names: list[str]) -> None:
    there = []
    if RESULTS.exists():
        with RESULTS.open() as file:
            there = [
                tuple(row[key] for key in FIELDS[:4]) for row in csv.DictReader(file)
            ]
    for name in names or QUESTIONS:
        for split in SPLITS.get(name, (0,)):
            for question, encodings in QUESTIONS[name].items():
                for encoding in encodings:
                    if (name, question, encoding, str(split)) in there:
                        continue
                    row = fitted(name, question, encoding, split)
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
