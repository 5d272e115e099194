"""Whether a run has come to its end."""

import math

import numpy as np

from natgrad.train._history import History


STILL = 0.01
"""Nats per row that a run which has converged may gain in its last fifth."""


def late_gain(history: History) -> float:
    """How much the bound rose in the last part of a run, beyond what may be noise."""
    values = np.asarray(history.column("objective"))
    fifth = max(1, len(values) // 5)
    if len(values) < 2 or not np.isfinite(values).all():
        return math.inf  # too short to tell
    after, before = values[-fifth:], values[-2 * fifth : -fifth]
    noise = math.sqrt((after.var() + before.var()) / fifth)
    return float(after.mean() - before.mean() - 2 * noise)
