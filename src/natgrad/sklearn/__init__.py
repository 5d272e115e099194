"""Estimators for scikit-learn: a table in, predictions with their uncertainty out."""

from natgrad.sklearn.classifiers import (
    GPClassifier as GPClassifier,
    GPOrdinal as GPOrdinal,
)
from natgrad.sklearn.loading import load as load
from natgrad.sklearn.regressor import GPRegressor as GPRegressor
