"""An estimator that learns from a table which is read as it is needed."""

import time
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from natgrad.data._batch import Batch
from natgrad.data._parquet import Parquet
from natgrad.data._scan import Summary
from natgrad.sklearn import _training as training
from natgrad.sklearn._base import in_double
from natgrad.sklearn._targets import ROUNDED, input_scales


@in_double
def fit(
    estimator: Any, rows: Parquet, found: Summary, classes: Any, **options: Any
) -> None:
    """As the estimator's own `fit`, which has all rows at hand.

    `rows` are the batches, and `found` is what a pass over the table has found: means,
    deviations, and a sample that units, likelihood and inducing inputs begin with.
    """
    began = time.monotonic()
    estimator._check_parameters()
    names = rows.schema.features
    estimator.n_features_in_ = len(names)
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._learn_classes(found.sample_y, classes)
    y = estimator._numbers(found.sample_y)
    estimator.x_mean_ = found.mean
    is_rounding = found.deviation <= ROUNDED * np.abs(found.mean)
    deviation = np.where(is_rounding, 0.0, found.deviation)
    estimator.x_scale_ = input_scales(found.sample_x, deviation)
    candidates = estimator._candidates(y, weight := np.ones(len(y)))
    targets = candidates[0]
    estimator.y_mean_, estimator.y_scale_ = targets.centre, targets.scale

    def encode(y: np.ndarray) -> np.ndarray:
        return estimator._standard(estimator._numbers(y.reshape(-1))).reshape(y.shape)

    data = rows.scaled(estimator.x_mean_, estimator.x_scale_, encode)
    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    sample = Batch(estimator._scaled(found.sample_x), estimator._standard(y), weight)
    model, fitted = training.begun(
        estimator, sample, candidates, seed, found.num_complete
    )
    if fitted is None:
        options["minutes"] = training.minutes_left(estimator, began)
        fitted = training.train(estimator, model, data, seed, **options)
    estimator._keep(fitted, data.num_data, time.monotonic() - began)
