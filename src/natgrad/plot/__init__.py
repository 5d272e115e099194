"""Pictures of estimators: each function takes Matplotlib's Axes and returns them."""

import functools
from collections.abc import Callable
from typing import Any

from natgrad.gp.likelihoods import Support
from natgrad.metrics import is_classifier, support_of
from natgrad.plot._checks import calibration, predicted, residuals
from natgrad.plot._fields import boundary, fit
from natgrad.plot._insides import history, lengthscales
from natgrad.sklearn._summary import feature_names


__all__ = [
    "fit",
    "boundary",
    "predicted",
    "calibration",
    "residuals",
    "lengthscales",
    "history",
]


def applicable(estimator: Any, X: object, y: object) -> dict[str, Callable[[Any], Any]]:
    """The pictures that apply to an estimator, by name, as functions of axes."""
    width, has_classes = len(feature_names(estimator)), is_classifier(estimator)
    # Without an order of the classes, normal scores mean nothing.
    has_order = support_of(estimator) is not Support.LABELS
    applies = {
        fit: width == 1,
        boundary: has_classes and width == 2,
        predicted: True,
        calibration: True,
        residuals: has_order,
        lengthscales: width > 1 and hasattr(estimator, "lengthscales_"),
        history: len(estimator.history_) > 1,
    }
    return {
        draw.__name__: functools.partial(draw, estimator)
        if draw in (lengthscales, history)
        else functools.partial(draw, estimator, X, y)
        for draw, does in applies.items()
        if does
    }
