"""Metrics of an estimator: how good its predictions are."""

from typing import Any, NamedTuple

import numpy as np

from natgrad.data._schema import EncodedRows
from natgrad.data._table import is_frame
from natgrad.errors import InputError
from natgrad.gp.likelihoods import Support


__all__ = ["evaluate"]


COVERAGES = (50, 90, 95)
"""The central intervals whose coverage is reported, in per cent."""

BINS = 10


def evaluate(estimator: Any, X: object, y: object) -> dict[str, float]:
    """Scores predictions on given data; returns a dictionary of metrics.

    Every estimator has `log_density`, the mean over rows in nats and your units, and
    `calibration_error`, the mean distance between predicted and observed frequencies.
    Regressors also have `rmse`, `mae`, `r2` and `coverage_50`, `coverage_90` and
    `coverage_95`, the shares of targets in central intervals. Classifiers have `error`,
    `log_loss` and `brier`. A count at the edge of an interval counts by the part of its
    probability that the interval holds.

    >>> scores = natgrad.metrics.evaluate(regressor, x, y)
    >>> print(round(scores["rmse"], 1), round(scores["r2"], 1))
    0.1 1.0
    """
    estimator, X = unwrapped(estimator, X)
    target = as_targets(X, y)
    density = {"log_density": float(np.mean(estimator.log_density(X, target)))}
    if is_classifier(estimator):
        return density | _of_classes(estimator, X, target, density["log_density"])
    return density | _of_numbers(estimator, X, target)


def _of_numbers(estimator: Any, X: object, y: np.ndarray) -> dict[str, float]:
    error = y - estimator.predict(X)
    square, spread = np.mean(error**2), np.mean((y - y.mean()) ** 2)
    found = {
        "rmse": float(np.sqrt(square)),
        "mae": float(np.mean(np.abs(error))),
        "r2": float(1 - square / spread) if spread > 0 else float("nan"),
    }
    try:
        values = pit(estimator, X, y)
    except NotImplementedError:  # your own likelihood may have no cdf
        return found
    levels = np.linspace(0.05, 0.95, 19)
    gaps = [values.coverage(level) - level for level in levels]
    found["calibration_error"] = float(np.mean(np.abs(gaps)))
    return found | {f"coverage_{k}": values.coverage(k / 100) for k in COVERAGES}


def _of_classes(
    estimator: Any, X: object, y: np.ndarray, log_density: float
) -> dict[str, float]:
    shares = np.asarray(estimator.predict_proba(X))
    classes = estimator.classes_
    brier = np.mean(((shares - (y[:, None] == classes[None, :])) ** 2).sum(1))
    bins = reliability(classes, shares, y)
    gaps = np.abs(bins.observed - bins.predicted)
    return {
        "error": float(np.mean(y != classes[shares.argmax(1)])),
        "log_loss": -log_density,
        # With two classes the sum has each error twice; by convention it counts once.
        "brier": float(brier / 2 if len(classes) == 2 else brier),
        "calibration_error": float(gaps @ bins.rows / len(y)),
    }


class Reliability(NamedTuple):
    """Bins of a predicted probability, those with rows in them."""

    predicted: np.ndarray  # the mean probability
    observed: np.ndarray  # how often it was right
    rows: np.ndarray
    bins: np.ndarray  # 0 for the bin that starts at 0


def reliability(classes: np.ndarray, shares: np.ndarray, y: np.ndarray) -> Reliability:
    """Predicted and observed frequencies, in bins of equal width.

    With two classes it is the probability of the second; with more, that of the
    predicted class.
    """
    top = np.ones(len(y), int) if len(classes) == 2 else shares.argmax(1)
    predicted = shares[np.arange(len(y)), top]
    hits = y == classes[top]
    place = np.clip((predicted * BINS).astype(int), 0, BINS - 1)
    rows = np.bincount(place, minlength=BINS)
    kept = np.flatnonzero(rows)
    mean = lambda x: np.bincount(place, x, BINS)[kept] / rows[kept]
    return Reliability(mean(predicted), mean(hits), rows[kept], kept)


# Shared with plot and report


def unwrapped(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The estimator at the end of a pipeline, and the inputs as it gets them."""
    if hasattr(estimator, "steps"):
        X = X if X is None else estimator[:-1].transform(X)
        estimator = estimator[-1]
    if not hasattr(estimator, "model_"):
        raise InputError(
            f"the estimator is a {type(estimator).__name__} without a model; it should "
            "be one of natgrad.sklearn that has been fitted, or a pipeline with one"
        )
    is_table = X is None or is_frame(X) or isinstance(X, EncodedRows)
    return estimator, X if is_table else np.asarray(X)


def is_classifier(estimator: object) -> bool:
    return hasattr(estimator, "classes_")


def support_of(estimator: Any) -> Support:
    """Where the targets live."""
    return getattr(estimator, "likelihood_", estimator.model_.likelihood).support


def as_targets(X: Any, y: object) -> np.ndarray:
    """Targets as an array, one for each row."""
    target = np.asarray(y)
    target = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    rows = X.shape[0]
    if target.shape != (rows,):
        more = "; for one of several outputs pass estimator.output(0) and its column"
        raise InputError(
            f"y has shape {list(target.shape)}; it should be one target for each of "
            f"the {rows} rows of X, [{rows}]{more if target.ndim == 2 else ''}"
        )
    if not rows:
        raise InputError("X has no rows; a metric needs at least one")
    return target


class PIT(NamedTuple):
    """Probability integral transforms: P(less than y) and P(at most y).

    The two differ for discrete targets only.
    """

    low: np.ndarray
    high: np.ndarray

    def randomized(self, seed: int = 0) -> np.ndarray:
        """A random number between the two: uniform if the predictions are right."""
        part = np.random.default_rng(seed).uniform(size=len(self.low))
        return self.low + part * (self.high - self.low)

    def coverage(self, level: float) -> float:
        """The share of targets in the central interval of a level.

        A discrete target at its edge counts by the part of its probability that the
        interval holds, so the share is the level if the predictions are right.
        """
        tail, step = (1 - level) / 2, self.high - self.low
        low, high = np.maximum(self.low, tail), np.minimum(self.high, 1 - tail)
        held = np.maximum(high - low, 0) / np.where(step > 0, step, 1.0)
        return float(np.mean(np.where(step > 0, held, low <= high)))


def pit(estimator: Any, X: object, y: np.ndarray) -> PIT:
    """The probability integral transform of each target.

    Classes are taken in their order; if they have none, any order will do.
    """
    if is_classifier(estimator):
        classes = estimator.classes_
        order = np.searchsorted(classes, getattr(estimator, "categories_", classes))
        shares = np.asarray(estimator.predict_proba(X))[:, order]
        hits = y[:, None] == classes[None, order]
        high = (np.cumsum(shares, 1) * hits).sum(1)
        return PIT((high - (shares * hits).sum(1)).clip(0, 1), high.clip(0, 1))
    high = estimator.cdf(X, y)
    if not support_of(estimator).is_whole:
        return PIT(high, high)
    return PIT((high - np.exp(estimator.log_density(X, y))).clip(0, 1), high)
