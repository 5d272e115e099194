"""Where targets lie in the predictive distributions of an estimator."""

from typing import Any, NamedTuple

import numpy as np

from natgrad.errors import InputError


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
    return estimator, X if X is None or hasattr(X, "columns") else np.asarray(X)


def is_classifier(estimator: Any) -> bool:
    return hasattr(estimator, "classes_")


def support_of(estimator: Any) -> str:
    """Where targets live: "real", "positive", "unit" or "count"."""
    return getattr(estimator.model_.likelihood, "support", "real")


def as_targets(X: Any, y: Any) -> np.ndarray:
    """Targets as an array, one for each row."""
    target = np.asarray(y)
    target = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    rows = X.shape[0]
    if target.shape != (rows,):
        raise InputError(
            f"y has shape {list(target.shape)}; it should be one target for each of "
            f"the {rows} rows of X, [{rows}]"
        )
    if not rows:
        raise InputError("X has no rows; there should be some to measure on")
    return target


class Places(NamedTuple):
    """P(less than y) and P(at most y), one number but for discrete targets."""

    low: np.ndarray
    high: np.ndarray

    def randomized(self, seed: int = 0) -> np.ndarray:
        """A number between the two: uniform, if the predictions are right."""
        part = np.random.default_rng(seed).uniform(size=len(self.low))
        return self.low + part * (self.high - self.low)

    def inside(self, level: float) -> float:
        """The share of targets in the central interval of a level.

        A discrete target at its edge counts by the part of its probability that the
        interval holds, so the share is the level if the predictions are right.
        """
        tail, step = (1 - level) / 2, self.high - self.low
        low, high = np.maximum(self.low, tail), np.minimum(self.high, 1 - tail)
        held = np.maximum(high - low, 0) / np.where(step > 0, step, 1.0)
        return float(np.mean(np.where(step > 0, held, low <= high)))


def places(estimator: Any, X: Any, y: np.ndarray) -> Places:
    """Where each target lies in its predictive distribution.

    Classes are taken in their order; where they have none, any will do.
    """
    if is_classifier(estimator):
        classes = estimator.classes_
        order = np.searchsorted(classes, getattr(estimator, "categories_", classes))
        shares = np.asarray(estimator.predict_proba(X))[:, order]
        hits = y[:, None] == classes[None, order]
        high = (np.cumsum(shares, 1) * hits).sum(1)
        return Places((high - (shares * hits).sum(1)).clip(0, 1), high.clip(0, 1))
    high = estimator.cdf(X, y)
    if support_of(estimator) != "count":
        return Places(high, high)
    return Places((high - np.exp(estimator.log_density(X, y))).clip(0, 1), high)
