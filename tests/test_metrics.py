"""Laws of the metrics: those of scikit-learn, where it has them."""

import numpy as np
import pytest
import sklearn.metrics as theirs
from sklearn.calibration import calibration_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from natgrad.errors import InputError
from natgrad.metrics import PIT, evaluate, pit, reliability
from tests.estimators import KINDS, fitted, table


@pytest.mark.parametrize("kind", ["one", "three", "counts"])
def test_errors_of_regressors_are_those_of_scikit_learn(kind):
    (X, y), estimator = table(kind), fitted(kind)
    ours, mean = evaluate(estimator, X, y), estimator.predict(X)
    assert ours["rmse"] == pytest.approx(theirs.root_mean_squared_error(y, mean))
    assert ours["mae"] == pytest.approx(theirs.mean_absolute_error(y, mean))
    assert ours["r2"] == pytest.approx(estimator.score(X, y))
    assert ours["log_density"] == pytest.approx(estimator.log_density(X, y).mean())


@pytest.mark.parametrize("kind", ["two classes", "classes", "grades"])
def test_errors_of_classifiers_are_those_of_scikit_learn(kind):
    (X, y), estimator = table(kind), fitted(kind)
    ours, shares = evaluate(estimator, X, y), estimator.predict_proba(X)
    names = {"labels": estimator.classes_}
    assert ours["error"] == pytest.approx(1 - estimator.score(X, y))
    assert ours["log_loss"] == pytest.approx(theirs.log_loss(y, shares, **names))
    if kind == "two classes":
        yes, label = shares[:, 1], estimator.classes_[1]
        brier = theirs.brier_score_loss(y, yes, pos_label=label)
    else:
        brier = theirs.brier_score_loss(y, shares, **names)
    assert ours["brier"] == pytest.approx(brier)
    bins = reliability(estimator.classes_, shares, np.asarray(y))
    gaps = np.abs(bins.observed - bins.predicted)
    expected = np.average(gaps, weights=bins.rows)
    assert ours["calibration_error"] == pytest.approx(expected)


def test_bins_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    yes = rng.uniform(size=500) ** 2
    y = (rng.uniform(size=500) < yes).astype(int)
    bins = reliability(np.arange(2), np.stack([1 - yes, yes], 1), y)
    observed, predicted = calibration_curve(y, yes, n_bins=10)
    np.testing.assert_allclose(bins.observed, observed)
    np.testing.assert_allclose(bins.predicted, predicted)
    np.testing.assert_array_equal(bins.rows, np.histogram(yes, 10, (0, 1))[0])


@pytest.mark.parametrize("kind", ["one", "three"])
def test_coverage_is_that_of_the_quantiles(kind):
    (X, y), estimator = table(kind), fitted(kind)
    ours = evaluate(estimator, X, y)
    for level in (50, 90, 95):
        tail = (1 - level / 100) / 2
        low, high = estimator.predict(X, quantiles=[tail, 1 - tail]).T
        inside = ((y >= low - 1e-9) & (y <= high + 1e-9)).mean()
        assert ours[f"coverage_{level}"] == pytest.approx(inside)


def test_right_predictions_have_uniform_transforms():
    (X, y), estimator = table("counts"), fitted("counts")
    found = pit(estimator, X, y.to_numpy())
    before = pit(estimator, X, y.to_numpy() - 1) if (y > 0).all() else None
    assert before is None or np.allclose(before.high, found.low)
    assert (found.low < found.high).all()
    drawn = found._replace(low=0 * found.low, high=0 * found.low + 1).randomized()
    assert 0.3 < drawn.mean() < 0.7


@pytest.mark.parametrize("level", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_coverage_of_right_predictions_is_the_level(level):
    uniform = (np.arange(1000) + 0.5) / 1000
    assert PIT(uniform, uniform).coverage(level) == pytest.approx(level, abs=1e-3)
    # A discrete target comes as often as its own probability says.
    shares = np.asarray([0.3, 0.05, 0.4, 0.25])
    ends = np.repeat(np.cumsum(shares), np.round(100 * shares).astype(int))
    begins = ends - np.repeat(shares, np.round(100 * shares).astype(int))
    assert PIT(begins, ends).coverage(level) == pytest.approx(level)


def test_a_pipeline_is_measured_as_the_estimator_at_its_end():
    (X, y), estimator = table("one"), fitted("one")
    halved = FunctionTransformer(lambda X: 2 * X).fit(X / 2)
    pipeline = make_pipeline(halved, estimator)
    assert evaluate(pipeline, X / 2, y) == evaluate(estimator, X, y)


def test_targets_at_even_levels_of_their_distributions_are_calibrated():
    (X, y), estimator = table("one"), fitted("one")
    levels = (np.arange(len(X)) + 0.5) / len(X)
    even = np.diagonal(estimator.predict(X, quantiles=np.roll(levels, 7).tolist()))
    right = evaluate(estimator, X, even)
    assert right["calibration_error"] < 0.01
    assert right["coverage_50"] == pytest.approx(0.5, abs=1e-3)
    wrong = evaluate(estimator, X, y.to_numpy() + 1e3)
    assert wrong["calibration_error"] > 0.4 and wrong["coverage_95"] == 0
    assert wrong["log_density"] < right["log_density"]


@pytest.mark.parametrize("kind", KINDS)
def test_targets_are_one_for_each_row(kind):
    (X, y), estimator = table(kind), fitted(kind)
    with pytest.raises(InputError, match=r"y has shape \[59\]; .* 60 rows of X"):
        evaluate(estimator, X, y[:-1])
    as_column = evaluate(estimator, X, y.to_frame())
    assert as_column == evaluate(estimator, X, y)
    assert all(np.isfinite(value) for value in as_column.values())
