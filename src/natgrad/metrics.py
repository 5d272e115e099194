"""How good the predictions of an estimator are, in numbers."""

from typing import Any, NamedTuple

import numpy as np

from natgrad._places import as_targets, is_classifier, places, unwrapped


__all__ = ["evaluate"]


COVERAGES = (50, 90, 95)
"""The central intervals whose coverage is given, in per cent."""

BINS = 10


def evaluate(estimator: Any, X: Any, y: Any) -> dict[str, float]:
    """The quality of predictions on given data, by name.

    Of all estimators `log_density`, the mean over rows in nats and the user's units,
    and `calibration_error`: how far shares that were predicted are from those that
    were observed, on average. Of regressors `rmse`, `mae`, `r2` and the shares of
    targets in central intervals, `coverage_50` and so on; of classifiers `error`,
    `log_loss` and `brier`. A count at the edge of an interval is inside by the part of
    its probability that the interval holds.
    """
    estimator, X = unwrapped(estimator, X)
    target = as_targets(X, y)
    density = {"log_density": float(np.mean(estimator.log_density(X, target)))}
    if is_classifier(estimator):
        return density | _of_classes(estimator, X, target, density["log_density"])
    return density | _of_numbers(estimator, X, target)


def _of_numbers(estimator: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    error = y - estimator.predict(X)
    square, spread = np.mean(error**2), np.mean((y - y.mean()) ** 2)
    found = {
        "rmse": float(np.sqrt(square)),
        "mae": float(np.mean(np.abs(error))),
        "r2": float(1 - square / spread) if spread > 0 else float("nan"),
    }
    try:
        where = places(estimator, X, y)
    except NotImplementedError:  # a likelihood of one's own may lack it
        return found
    levels = np.linspace(0.05, 0.95, 19)
    gaps = [where.inside(level) - level for level in levels]
    found["calibration_error"] = float(np.mean(np.abs(gaps)))
    return found | {f"coverage_{k}": where.inside(k / 100) for k in COVERAGES}


def _of_classes(
    estimator: Any, X: Any, y: np.ndarray, log_density: float
) -> dict[str, float]:
    shares = np.asarray(estimator.predict_proba(X))
    classes = estimator.classes_
    brier = np.mean(((shares - (y[:, None] == classes[None, :])) ** 2).sum(1))
    bins = reliability(classes, shares, y)
    gaps = np.abs(bins.observed - bins.predicted)
    return {
        "error": float(np.mean(y != classes[shares.argmax(1)])),
        "log_loss": -log_density,
        # Of two classes each error counts twice, and by custom once.
        "brier": float(brier / 2 if len(classes) == 2 else brier),
        "calibration_error": float(gaps @ bins.rows / len(y)),
    }


class Reliability(NamedTuple):
    """Bins of a predicted probability, those with rows in them."""

    predicted: np.ndarray  # the mean probability
    observed: np.ndarray  # how often it came true
    rows: np.ndarray
    places: np.ndarray  # 0 for the bin that begins at 0


def reliability(classes: np.ndarray, shares: np.ndarray, y: np.ndarray) -> Reliability:
    """What was predicted and what came, in bins of equal width.

    Of two classes the probability of the second is looked at; of more, that of the
    class which is predicted.
    """
    top = np.ones(len(y), int) if len(classes) == 2 else shares.argmax(1)
    predicted = shares[np.arange(len(y)), top]
    hits = y == classes[top]
    place = np.clip((predicted * BINS).astype(int), 0, BINS - 1)
    rows = np.bincount(place, minlength=BINS)
    kept = np.flatnonzero(rows)
    mean = lambda x: np.bincount(place, x, BINS)[kept] / rows[kept]
    return Reliability(mean(predicted), mean(hits), rows[kept], kept)
