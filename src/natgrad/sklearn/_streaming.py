"""How an estimator learns from rows that come in pieces."""

import math
from typing import Any

import equinox as eqx
import numpy as np

from natgrad import gp
from natgrad.data._batches import Batch, Columns
from natgrad.gp.inducing import MOST
from natgrad.sklearn._kernels import is_convertible
from natgrad.sklearn._targets import ROUNDED, is_constant


SHIFTED = ("lower", "upper")
"""Columns in units of the targets, with the same zero."""


def widened(estimator: Any, x: np.ndarray) -> np.ndarray:
    """The scales of the inputs, with one for inputs that are no longer constant.

    All rows so far are at 0 in any unit of such an input, and so nothing else changes.
    """
    centre, scale = estimator.x_mean_, estimator.x_scale_
    if not is_constant(scale).any():
        return scale
    far = np.abs(x - centre)
    has_moved = far > ROUNDED * np.maximum(np.abs(centre), np.abs(x))
    number = has_moved.sum(0)
    far = np.where(has_moved, far, 0.0).sum(0) / np.maximum(number, 1)
    if not is_convertible(estimator.kernel):  # it sees the inputs as they are
        far = np.ones_like(far)
    return np.where(is_constant(scale) & (number > 0), far, scale)


def learn(
    estimator: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray, columns: Columns
) -> None:
    """Updates an estimator with rows; if that fails, it stays as it was."""
    before = (estimator.x_scale_, estimator.y_mean_)
    try:
        estimator.x_scale_ = widened(estimator, x)
        likelihood = estimator.model_.likelihood
        known = getattr(estimator, "_online", None)
        if not isinstance(known, gp.Online):
            known = _begun(estimator, known)
        total = estimator.n_rows_seen_ + float(weight.sum())
        # Where targets are f and noise, both in units of the targets.
        if likelihood.is_location and likelihood.latents is None:
            # The mean of all rows so far takes the place of the mean of the first.
            offset = columns.get("offset", 0.0)
            gap = weight @ (y - offset - estimator.y_mean_) / total
            estimator.y_mean_ = estimator.y_mean_ + gap
            known = shifted(known, -float(gap / estimator.y_scale_))
        known = known.update(estimator._batch(x, y, weight, columns, likelihood))
    except BaseException:
        estimator.x_scale_, estimator.y_mean_ = before
        raise
    estimator._online = known
    estimator._set_model(known.model)
    estimator.n_rows_seen_ = total


def shifted(known: gp.Online, shift: float) -> gp.Online:
    """What was learned, when a number is added to all targets."""
    fields = lambda known: (known.shift, known.rows)
    rows = known.rows
    if rows is not None:
        bounds = {k: rows.columns[k] + shift for k in SHIFTED if k in rows.columns}
        rows = rows._replace(y=rows.y + shift, columns=rows.columns | bounds)
    is_none = lambda node: node is None
    values = (known.shift + shift, rows)
    return eqx.tree_at(fields, known, values, is_leaf=is_none)


def _begun(estimator: Any, rows: Batch | None) -> gp.Online:
    """What can learn, from an estimator that was fitted; its rows may be gone."""
    limit = MOST if estimator.n_inducing == "auto" else estimator.n_inducing
    begun = gp.online(estimator.model_, rows, num_inducing=limit)
    if rows is not None:
        return begun
    total = estimator.n_rows_seen_
    totals = lambda online: (online.num_data, online.learned_at, online.unsampled)
    fields = lambda online: (*totals(online), online.count)
    return eqx.tree_at(fields, begun, (*[total] * 3, math.ceil(total)))
