"""Tables of the experiments: read by name, split and scaled."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from natgrad import datasets
from natgrad.datasets import _files as files


OFFICIAL = {"mnist": 60_000, "year": 463_715}
"""Data sets with an official split: the first rows are for training."""


class Split(NamedTuple):
    """Training rows and test rows."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def path(name: str) -> Path:
    """The file of a data set of natgrad, or of another table in the same folder."""
    if name in datasets.names():
        return files.path(name)
    return files.folder() / f"{name}.parquet"


def absent(name: str) -> str:
    """The message for a table whose file is missing."""
    if name in datasets.names():
        return files.absent(files.describe(name))
    return f"{path(name)} is missing; its last column should be the target"


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of a table, and its last column: the targets."""
    if name in datasets.names():
        return datasets.load(name)
    _, x, y = files.read(path(name))
    return x, y


def split(name: str, x: np.ndarray, y: np.ndarray, number: int = 0) -> Split:
    """The official split of a data set that has one, else a random split of 9 to 1.

    `number` is the seed that shuffles the rows; the paper uses five.
    """
    if name in OFFICIAL:
        first = OFFICIAL[name]
        if len(y) <= first:
            raise ValueError(
                f"there are {len(y):,} rows; the first {first:,} of {name} are for "
                "training, and the rest for testing"
            )
        return Split(x[:first], y[:first], x[first:], y[first:])
    order = np.random.default_rng(number).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    return Split(x[train], y[train], x[test], y[test])


def with_scaled_inputs(rows: Split) -> Split:
    """Scales inputs to mean 0 and standard deviation 1 in the training rows.

    A column that is constant there becomes 0 there.
    """
    is_constant = rows.x.min(0) == rows.x.max(0)
    mean, deviation = rows.x.mean(0, dtype=float), rows.x.std(0, dtype=float)
    mean = np.where(is_constant, rows.x[0], mean)
    scale = np.where(is_constant, 1.0, deviation)
    scaled = lambda part: (part - mean) / scale
    return rows._replace(x=scaled(rows.x), x_test=scaled(rows.x_test))


def with_scaled_targets(rows: Split) -> Split:
    """Scales targets to mean 0 and standard deviation 1 in the training rows."""
    mean, deviation = rows.y.mean(), rows.y.std()
    return rows._replace(
        y=(rows.y - mean) / deviation, y_test=(rows.y_test - mean) / deviation
    )
