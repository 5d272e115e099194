"""Pictures of estimators: each function takes Matplotlib's Axes and returns them."""

from natgrad.plot._checks import calibration, predicted, residuals
from natgrad.plot._fields import boundary, fit
from natgrad.plot._insides import history, lengthscales


__all__ = [
    "fit",
    "boundary",
    "predicted",
    "calibration",
    "residuals",
    "lengthscales",
    "history",
]
