"""An estimator that learns from a data set which is read as it is needed."""

import time
from typing import Any

import numpy as np

from natgrad.data._prepare import Stream
from natgrad.sklearn import _training as training
from natgrad.sklearn._targets import ROUNDED


def fit(estimator: Any, data: Stream, classes: Any, **options: Any) -> None:
    """As the estimator's own `fit`, which has all rows in memory.

    A sample sets the units of the targets, and where likelihood and inducing inputs
    start.
    """
    began, (batches, found) = time.monotonic(), data
    estimator._check_parameters()
    names = batches.schema.features
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._learn_classes(found.sample_y, classes)
    y = estimator._numbers(found.sample_y)
    is_rounding = found.deviation <= ROUNDED * np.abs(found.mean)
    deviation = np.where(is_rounding, 0.0, found.deviation)
    candidates, sample, seed = estimator._scale(
        found.mean, deviation, found.sample_x, y, np.ones(len(y))
    )

    def encode(y: np.ndarray) -> np.ndarray:
        return estimator._standard(estimator._numbers(y.reshape(-1))).reshape(y.shape)

    rows = batches.scaled(estimator.x_mean_, estimator.x_scale_, encode)
    total = found.num_complete
    model, fitted = training.begun(estimator, sample, candidates, seed, total)
    if fitted is None:
        options["minutes"] = training.minutes_left(estimator, began)
        fitted = training.train(estimator, model, rows, seed, **options)
    estimator._keep(fitted, rows.num_data, time.monotonic() - began)
