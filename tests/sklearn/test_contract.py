"""The estimators pass all of scikit-learn's own checks, with none skipped."""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor


@pytest.mark.parametrize(
    "kind, least",
    [
        (GPRegressor, 52),
        (GPClassifier, 55),
        # It is a classifier but for its likelihood.
        pytest.param(GPOrdinal, 55, marks=pytest.mark.long),
    ],
)
def test_all_checks_of_scikit_learn_pass(kind, least, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or one check is skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            kind(max_iter=30, verbose=False), on_fail=None, on_skip=None
        )
    wrong = [
        (result["check_name"], result["status"], str(result["exception"]))
        for result in results
        if result["status"] != "passed"
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(results) >= least
