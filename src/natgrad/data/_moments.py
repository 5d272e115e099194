"""Means, squared distances from them and first days, of rows in parts."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def moments_of(rows: np.ndarray) -> np.ndarray:
    """How many numbers each column has, their mean and squared distances from it."""
    is_null = np.isnan(rows)
    number = len(rows) - is_null.sum(0)
    there = np.where(is_null, 0.0, rows) if is_null.any() else rows
    mean = there.sum(0) / np.maximum(number, 1)
    distance = there - mean
    if is_null.any():
        distance[is_null] = 0
    return np.stack([number, mean, (distance**2).sum(0)], axis=-1)


def together(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The moments of two sets of rows together."""
    number = one[..., 0] + other[..., 0]
    share = other[..., 0] / np.maximum(number, 1)
    apart = other[..., 1] - one[..., 1]
    mean = np.where(one[..., 0] > 0, one[..., 1] + apart * share, other[..., 1])
    squares = one[..., 2] + other[..., 2] + apart**2 * one[..., 0] * share
    return np.stack([number, mean, squares], axis=-1)


def earliest(days: Iterable[Any]) -> float | None:
    """The first of some days, of which those that are not known are None."""
    return min((float(day) for day in days if day is not None), default=None)
