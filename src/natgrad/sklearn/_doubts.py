"""What an estimator warns of after a fit."""

import math
from typing import Any

import numpy as np

from natgrad import gp
from natgrad._registry import MANY
from natgrad.data._batch import Batch, split
from natgrad.gp import _baseline as baseline, _few_rows as few_rows
from natgrad.sklearn._targets import is_own
from natgrad.train._history import History
from natgrad.train._loop import CONVERGED


def reason_to_doubt(
    estimator: Any, elbo: float, rows: Batch, weight: np.ndarray
) -> str | None:
    """Why a fit of real targets may be worse than it says, if there is a reason.

    The ELBO is per row; the log density of held-out rows can take its place.
    """
    noise, (y, columns) = estimator.model_.likelihood, split(rows.y)
    if columns:
        return None
    if noise.outputs is not None:
        return few_rows.few(len(y))
    if is_own(noise):
        return baseline.worse(elbo, y, weight) if np.any(y != np.round(y)) else None
    if not isinstance(noise, few_rows.NOISY):
        return None
    doubt = few_rows.few(len(y))
    if doubt is None and len(np.unique(y)) == 2:
        doubt = (
            "the targets have two values only, and real noise may fit them "
            "too closely; use GPClassifier for the probability of each"
        )
    if doubt is None and estimator.message_ == CONVERGED:
        doubt = baseline.worse(elbo, y, weight)
    if doubt is None and len(y) < MANY and isinstance(noise, gp.likelihoods.Gaussian):
        doubt = baseline.tails(rows, estimator._predictor.predict, noise.variance)
    return doubt


def late_gain(history: History) -> float:
    """How much the ELBO rose in the last fifth of a run, beyond noise."""
    values = np.asarray(history.column("objective"))
    fifth = max(1, len(values) // 5)
    if len(values) < 2 or not np.isfinite(values).all():
        return math.inf  # too short to tell
    after, before = values[-fifth:], values[-2 * fifth : -fifth]
    noise = math.sqrt((after.var() + before.var()) / fifth)
    return float(after.mean() - before.mean() - 2 * noise)
