"""A warning names the line of the caller, however deep in natgrad it begins."""

import functools
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from natgrad import gp
from natgrad.errors import InputWarning
from natgrad.sklearn import GPRegressor


X = np.linspace(0, 1, 5)[:, None]
Y = np.sin(9 * X[:, 0])
TOWNS = pd.DataFrame({"town": ["Leeds", "Hull"] * 10, "size": np.arange(20.0)})


def too_many_inducing() -> None:
    gp.inducing.k_means(X, 10)


def few_rows() -> None:
    model = gp.SparseGP(gp.kernels.Matern52(1.0), gp.likelihoods.Gaussian(), X)
    gp.fit(model, (X, Y), steps=2, progress=False)


def estimator() -> None:
    GPRegressor(max_iter=1).fit(X, Y)


def pipeline() -> None:
    make_pipeline(GPRegressor(max_iter=1)).fit(X, Y)


@functools.cache
def fitted() -> GPRegressor:
    return GPRegressor(max_iter=1).fit(TOWNS, np.cos(TOWNS["size"]))


def unknown_category() -> None:
    fitted().predict(TOWNS.assign(town="York"))


CALLS = (too_many_inducing, few_rows, estimator, pipeline, unknown_category)


@pytest.mark.parametrize("call", CALLS)
def test_a_warning_names_the_line_of_the_caller(call: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    ours = [warning for warning in caught if issubclass(warning.category, InputWarning)]
    lines = {line for *_, line in call.__code__.co_lines()}
    assert ours
    for warning in ours:
        assert warning.filename == __file__
        assert warning.lineno in lines
