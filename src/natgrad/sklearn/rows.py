"""The rows of a table, as they count."""

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight


ALIKE = 16
"""How many columns it takes for most of them to be of one kind."""


def weighted(
    x: np.ndarray, y: np.ndarray, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows that count, and how much."""
    weight = _check_sample_weight(
        sample_weight, x, dtype=float, ensure_non_negative=True
    )
    return x[weight > 0], y[weight > 0], weight[weight > 0]


def counted(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that repeat, once, with their weights added."""
    rows = np.column_stack([x, y]) + 0.0  # zeros of both signs are equal
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    weight = np.bincount(places.reshape(-1), weights=weight, minlength=len(distinct))
    return distinct[:, :-1], distinct[:, -1], weight


def scaled_alike(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The deviations to divide by, one for all columns if they are of one kind.

    So are pixels, and columns of zeros and ones, by their smallest and largest values.
    Divided by its own deviation, a pixel that is hardly ever set would outweigh all.
    """
    if len(scale) < ALIKE:
        return scale
    ends = np.stack([x.min(0), x.max(0)], axis=1)
    kinds, number = np.unique(ends, axis=0, return_counts=True)
    low, high = kinds[number.argmax()]
    if 2 * number.max() <= len(scale) or low == high:
        return scale
    unit = max(abs(low), abs(high))  # squares of what is near 1e300 are infinite
    return np.full_like(scale, unit * np.sqrt((x / unit).var(0).mean()))
