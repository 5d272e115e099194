"""Estimators for scikit-learn: a table in, predictions with their uncertainty out."""

try:
    import sklearn as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        'the estimators need scikit-learn: pip install "natgrad[sklearn]"',
        name="sklearn",
    ) from error

from natgrad.sklearn._classifiers import (
    GPClassifier as GPClassifier,
    GPOrdinal as GPOrdinal,
)
from natgrad.sklearn._files import load as load
from natgrad.sklearn._regressor import GPRegressor as GPRegressor


__all__ = ["GPRegressor", "GPClassifier", "GPOrdinal", "load"]
