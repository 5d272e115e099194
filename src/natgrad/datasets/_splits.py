"""Which rows to learn from and which to test on, and the paper's scaling."""

from typing import NamedTuple

import numpy as np

from natgrad.errors import InputError


OFFICIAL = {"mnist": 60_000, "year": 463_715}
"""Sets that say themselves which rows come first, to learn from."""


class Split(NamedTuple):
    """Rows to learn from, and rows to test on."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def split(name: str, x: np.ndarray, y: np.ndarray, number: int = 0) -> Split:
    """The official split of a set that has one; of others nine tenths at random.

    The number of the split is the seed that shuffles the rows; the paper has five.
    The same rows in another order have other splits.
    """
    if name in OFFICIAL:
        first = OFFICIAL[name]
        if len(y) <= first:
            raise InputError(
                f"there are {len(y):,} rows; of {name} the first {first:,} are to "
                "learn from, and those after them to test on"
            )
        return Split(x[:first], y[:first], x[first:], y[first:])
    order = np.random.default_rng(number).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    return Split(x[train], y[train], x[test], y[test])


def with_scaled_inputs(rows: Split) -> Split:
    """Inputs of mean 0 and deviation 1 in the training rows.

    A column that is constant there is 0 there.
    """
    is_constant = rows.x.min(0) == rows.x.max(0)
    mean, deviation = rows.x.mean(0, dtype=float), rows.x.std(0, dtype=float)
    mean = np.where(is_constant, rows.x[0], mean)
    scale = np.where(is_constant, 1.0, deviation)

    def scaled(part: np.ndarray) -> np.ndarray:
        moved = part - mean
        moved /= scale  # in its place: a large table is there once more, not twice
        return moved

    return rows._replace(x=scaled(rows.x), x_test=scaled(rows.x_test))


def with_scaled_targets(rows: Split) -> Split:
    """Targets of mean 0 and deviation 1 in the training rows."""
    mean, deviation = rows.y.mean(), rows.y.std()
    return rows._replace(
        y=(rows.y - mean) / deviation, y_test=(rows.y_test - mean) / deviation
    )
