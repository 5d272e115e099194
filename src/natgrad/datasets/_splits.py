"""Splits into training and test rows, and the paper's scaling."""

from typing import NamedTuple

import numpy as np

from natgrad.errors import InputError


OFFICIAL = {"mnist": 60_000, "year": 463_715}
"""Data sets with an official split: the first rows are for training."""


class Split(NamedTuple):
    """Training rows and test rows.

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> rows = natgrad.datasets.split("motorcycle", X, y)
    >>> rows.x.shape, rows.x_test.shape
    ((120, 1), (13, 1))
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def split(name: str, x: np.ndarray, y: np.ndarray, number: int = 0) -> Split:
    """The official split of a data set that has one, else a random split of 9 to 1.

    `number` is the seed that shuffles the rows; the paper uses five. The split depends
    on the order of the rows.

    Raises:
        InputError: If there are too few rows for the official split.

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> rows = natgrad.datasets.split("motorcycle", X, y, number=1)
    >>> len(rows.y), len(rows.y_test)
    (120, 13)
    """
    if name in OFFICIAL:
        first = OFFICIAL[name]
        if len(y) <= first:
            raise InputError(
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

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> rows = natgrad.datasets.split("motorcycle", X, y)
    >>> print(natgrad.datasets.with_scaled_inputs(rows).x.std(0).round(2))
    [1.]
    """
    is_constant = rows.x.min(0) == rows.x.max(0)
    mean, deviation = rows.x.mean(0, dtype=float), rows.x.std(0, dtype=float)
    mean = np.where(is_constant, rows.x[0], mean)
    scale = np.where(is_constant, 1.0, deviation)

    def scaled(part: np.ndarray) -> np.ndarray:
        moved = part - mean
        moved /= scale  # in place: a large table needs one copy, not two
        return moved

    return rows._replace(x=scaled(rows.x), x_test=scaled(rows.x_test))


def with_scaled_targets(rows: Split) -> Split:
    """Scales targets to mean 0 and standard deviation 1 in the training rows.

    >>> X, y = natgrad.datasets.load("motorcycle")
    >>> rows = natgrad.datasets.split("motorcycle", X, y)
    >>> print(f"{natgrad.datasets.with_scaled_targets(rows).y.std():.2f}")
    1.00
    """
    mean, deviation = rows.y.mean(), rows.y.std()
    return rows._replace(
        y=(rows.y - mean) / deviation, y_test=(rows.y_test - mean) / deviation
    )
