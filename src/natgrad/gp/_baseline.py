"""Targets without inputs: the Student-t distribution that any fit should beat."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from natgrad.data._batches import Batch


__all__ = ["has_heavy_tails", "student_t_score", "tails", "worse"]

DOF = 4.0
"""Degrees of freedom: heavy tails, and the variance is still finite."""

STEPS = 100
"""Steps of expectation maximisation, which takes a few dozen."""

SMALLEST = 1e-3
"""The scale is at least this part of the deviation, as if half of the targets were
equal it could be 0."""

SLACK = 0.12
"""Nats per row by which a fit may be below the distribution without a warning. Fits of
pure noise were at most 0.1 below it, with 20 to 200 rows."""

TAILS = 0.06
"""Nats per row by which a Student-t must beat a normal distribution before tails count
as heavy, and one nat more in all: normal numbers pass this in 1 of 200 tables."""

LEAST_NOISE = 0.05
"""With less noise, in deviations of the targets, rows lie on a curve, and what is left
of them is not noise."""


def student_t_score(y: object, weight: object = None) -> float:
    """The mean log density of targets under a Student-t that is fitted to them.

    It is infinite if they are all equal.
    """
    y = np.asarray(y, float)
    part = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    part = part / part.sum()
    unit = float(np.abs(y).max()) or 1.0  # squares of large numbers overflow
    y = y / unit
    centre = part @ y
    deviation = scale = math.sqrt(part @ (y - centre) ** 2)
    if deviation <= 10 * np.finfo(float).eps:
        return math.inf
    for _ in range(STEPS):
        share = part * (DOF + 1) / (DOF + ((y - centre) / scale) ** 2)
        centre = share @ y / share.sum()
        found = math.sqrt(share @ (y - centre) ** 2)
        scale = max(found, SMALLEST * deviation)
    constant = math.lgamma((DOF + 1) / 2) - math.lgamma(DOF / 2)
    constant -= math.log(DOF * math.pi) / 2 + math.log(scale) + math.log(unit)
    tails = np.log1p(((y - centre) / scale) ** 2 / DOF)
    return float(constant - (DOF + 1) / 2 * part @ tails)


def worse(elbo: float, y: object, weight: object = None) -> str | None:
    """What to warn of, if the ELBO per row of a fit is below that distribution."""
    score = student_t_score(y, weight)
    if not math.isfinite(score) or elbo >= score - SLACK:
        return None
    return (
        f"the fit is worse than a Student-t distribution of the targets alone, by "
        f"{score - elbo:.1f} nats per row: use a Student-t likelihood if they have "
        "outliers, fit their logarithm if they are skewed, and give gp.fit inputs and "
        "targets of a size near 1"
    )


def has_heavy_tails(values: object, weight: object = None) -> bool:
    """Whether a Student-t distribution fits clearly better than a normal one."""
    values = np.asarray(values, float)
    part = np.ones(len(values)) if weight is None else np.asarray(weight, float)
    part = part / part.sum()
    variance = float(part @ (values - part @ values) ** 2)
    score = student_t_score(values, weight)
    if not math.isfinite(score) or variance <= 0:
        return False
    normal = -0.5 * math.log(2 * math.pi * variance) - 0.5
    return score - normal > TAILS + 1 / len(values)


def tails(
    rows: Batch, predict: Callable[[Any], tuple[Any, Any]], noise: Any
) -> str | None:
    """What to warn of, if normal noise leaves residuals with heavy tails.

    The targets are of unit variance, and `noise` is the variance that was learned.
    """
    y, weight = np.asarray(rows.y), rows.weight
    # `predict` takes half a second: only if the targets themselves have such tails.
    if float(noise) < LEAST_NOISE**2 or not has_heavy_tails(y, weight):
        return None
    mean, variance = map(np.asarray, predict(rows.x))
    if not has_heavy_tails((y - mean) / np.sqrt(variance), weight):
        return None
    return (
        "the residuals have heavier tails than normal noise, so intervals may be too "
        "narrow: use likelihood='student-t' if the targets have outliers, or fit their "
        "logarithm if they are skewed"
    )
