"""How an estimator learns from rows that come in pieces."""

import math
from typing import Any

import equinox as eqx
import numpy as np

from natgrad import gp
from natgrad.data._batch import Batch, split
from natgrad.gp.inducing import MOST
from natgrad.gp.likelihoods import Gaussian, StudentT
from natgrad.sklearn._targets import centre_and_deviation, is_constant


SHIFTED = ("y", "lower", "upper")
"""Columns in units of the targets, with the same zero."""


def widen(estimator: Any, x: np.ndarray) -> None:
    """Gives a unit to inputs that were constant, and no longer are.

    All rows so far are at 0 in any unit of such an input, and so nothing else changes.
    """
    if not len(x):
        return
    centre, scale = estimator.x_mean_, estimator.x_scale_
    far = np.abs(centre_and_deviation(np.abs(x - centre), np.ones(len(x)))[0])
    is_moving = is_constant(scale) & (far > 0)
    estimator.x_scale_ = np.where(is_moving, far, scale)


def learn(estimator: Any, rows: Any, is_first: bool) -> None:
    """Updates an estimator with scaled rows, or notes those that it was fitted to."""
    if is_first:
        estimator._online = rows
        return
    known = getattr(estimator, "_online", None)
    if not isinstance(known, gp.Online):
        known = _begun(estimator, known)
    weight = float(np.sum(rows.weight))
    total = estimator.n_rows_seen_ + weight
    if is_centred(estimator.model_.likelihood):
        # The mean of all rows so far takes the place of the mean of the first.
        shift = float(rows.weight @ split(rows.y)[0]) / total
        known, rows = shifted(known, -shift), _with_targets(rows, -shift)
        estimator.y_mean_ = estimator.y_mean_ + shift * estimator.y_scale_
    estimator._online = known = known.update(rows)
    estimator._set_model(known.model)
    estimator.n_rows_seen_ = total


def is_centred(likelihood: Any) -> bool:
    """Whether targets are f and noise, both in units of the targets."""
    return isinstance(likelihood, Gaussian | StudentT)


def shifted(known: gp.Online, shift: float) -> gp.Online:
    """What was learned, when a number is added to all targets."""
    fields = lambda known: (known.old.mean, known.rows)
    rows = known.rows and _with_targets(known.rows, shift)
    is_none = lambda node: node is None
    values = (known.old.mean + shift, rows)
    return eqx.tree_at(fields, known, values, is_leaf=is_none)


def _with_targets(rows: Batch, shift: float) -> Batch:
    if isinstance(rows.y, dict):
        move = {name: rows.y[name] + shift for name in SHIFTED if name in rows.y}
        return rows._replace(y={**rows.y, **move})
    return rows._replace(y=rows.y + shift)


def _begun(estimator: Any, rows: Batch | None) -> gp.Online:
    """What can learn, from an estimator that was fitted; its rows may be gone."""
    limit = MOST if estimator.n_inducing == "auto" else estimator.n_inducing
    begun = gp.online(estimator.model_, rows, num_inducing=limit)
    if rows is not None:
        return begun
    total = estimator.n_rows_seen_
    fields = lambda online: (online.num_data, online.learned_at, online.count)
    return eqx.tree_at(fields, begun, (total, total, math.ceil(total)))
