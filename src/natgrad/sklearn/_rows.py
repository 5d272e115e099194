"""The rows of a table, as they count."""

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight


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
