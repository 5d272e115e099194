"""The estimators pass all of scikit-learn's own checks, with none skipped.

But one that has GPOrdinal take three strings, whose order it cannot know.
"""

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor
from tests.variants import variants


@pytest.fixture(autouse=True)
def as_scikit_learn_checks(monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or one check is skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


LEAST = {GPRegressor: 52, GPClassifier: 55, GPOrdinal: 55}


@pytest.mark.parametrize("kind", variants(LEAST, [GPRegressor]))
def test_all_checks_of_scikit_learn_pass(kind):
    results = check_estimator(
        kind(max_iter=30, verbose=False), on_fail=None, on_skip=None
    )
    is_refused = lambda result: (
        kind is GPOrdinal
        and result["check_name"] == "check_classifiers_classes"
        and "whose order is not known" in str(result["exception"])
    )
    wrong = [
        (result["check_name"], result["status"], str(result["exception"]))
        for result in results
        if result["status"] != "passed" and not is_refused(result)
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(results) >= LEAST[kind]


@pytest.mark.nightly
def test_the_checks_that_are_only_for_classifiers_pass():
    pairs = estimator_checks_generator(GPClassifier(max_iter=30, verbose=False))
    own = [(model, check) for model, check in pairs if "classifier" in str(check)]
    assert len(own) >= 8
    for model, check in own:
        check(model)
