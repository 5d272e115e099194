"""Pictures of estimators: each function takes Matplotlib's Axes and returns them."""

from natgrad.plot._checks import (
    calibration as calibration,
    predicted as predicted,
    residuals as residuals,
)
from natgrad.plot._fields import boundary as boundary, fit as fit
from natgrad.plot._insides import history as history, lengthscales as lengthscales


__all__ = [
    "fit",
    "boundary",
    "predicted",
    "calibration",
    "residuals",
    "lengthscales",
    "history",
]
