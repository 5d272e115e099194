"""What users may rely on: units, weights, files, frames, and scikit-learn's tools."""

import pickle
import re

import jax
import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score

import natgrad.sklearn
from natgrad.errors import CorruptFileError, FitError, IncompatibleFileError
from natgrad.gp._files import FORMAT
from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor
from natgrad.sklearn._targets import is_constant
from tests.variants import variants


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

SHORT = {"max_iter": 40, "n_inducing": 16, "verbose": False}
ROWS = 64
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (ROWS, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + 0.2 * RNG.standard_normal(ROWS)
LABELS = np.digitize(Y, [-0.5, 0.5])
TARGETS = {
    "gaussian": Y,
    "student-t": Y,
    "heteroskedastic": Y,
    "gamma": np.exp(Y),
    "beta": 1 / (1 + np.exp(-Y)),
    "poisson": np.floor(10 * np.exp(Y)),
    "negative-binomial": np.floor(10 * np.exp(Y)),
}
OFTEN = ("gaussian", "heteroskedastic", "poisson")
CLASSIFIERS = {
    "bernoulli": (GPClassifier(**SHORT), np.where(Y > 0, "yes", "no")),
    "softmax": (GPClassifier(**SHORT), LABELS),
    "robust-max": (GPClassifier("robust-max", **SHORT), LABELS),
    "ordinal": (GPOrdinal(**SHORT), LABELS * 10),
}


@pytest.fixture(autouse=True)
def as_a_user():
    """JAX as it is if nothing is set, which the estimators must leave as it is."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("strict"):
        yield
        assert jax.numpy.zeros(()).dtype == np.float32


def assert_same(one, other):
    """Equal but for rounding, which differs between sizes of a batch."""
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("likelihood", variants(TARGETS, OFTEN))
def test_regressors_know_their_targets(likelihood, tmp_path):
    y = TARGETS[likelihood]
    model = GPRegressor(likelihood, **SHORT).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert mean.dtype == np.float64 and (std > 0).all()
    assert model.score(X, y) > 0.5
    low, middle, high = model.predict(X, quantiles=[0.05, 0.5, 0.95]).T
    assert (low <= middle).all() and (middle <= high).all()
    assert 0.8 <= ((low <= y) & (y <= high)).mean() <= 1
    log_density = model.log_density(X, y)
    assert log_density.mean() > np.log(1 / (np.ptp(y) + 1)) - 1
    draws = model.sample_y(X[:8], 400)
    assert draws.shape == (8, 400)
    error = np.sqrt(draws.var(1) / 400)
    assert (abs(draws.mean(1) - mean[:8]) < 6 * error).all()
    assert "\n" in str(model) and repr(model).startswith("GPRegressor(")
    for again in (pickle.loads(pickle.dumps(model)), saved(model, tmp_path)):
        np.testing.assert_array_equal(again.predict(X), mean)
        assert str(again) == str(model)
        assert again.get_params() == model.get_params()


def saved(model, folder):
    model.save(folder / "model", {"note": "mine"})
    assert FORMAT.read_metadata(folder / "model")["user"] == {"note": "mine"}
    return natgrad.sklearn.load(folder / "model")


@pytest.mark.parametrize("name", variants(CLASSIFIERS, ["bernoulli", "softmax"]))
def test_classifiers_know_their_classes(name, tmp_path):
    model, y = CLASSIFIERS[name]
    model.fit(X, y)
    proba = model.predict_proba(X)
    assert_same(proba.sum(1), 1)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.score(X, y) > 0.75
    at = np.searchsorted(model.classes_, y)
    np.testing.assert_allclose(
        model.log_density(X, y), np.log(proba[np.arange(ROWS), at]), atol=1e-4
    )
    for again in (pickle.loads(pickle.dumps(model)), saved(model, tmp_path)):
        np.testing.assert_array_equal(again.predict_proba(X), proba)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.fixture(scope="module")
def fitted():
    return GPRegressor(**SHORT).fit(X, Y)


def test_units_do_not_matter(fitted):
    scales, shifts = np.asarray([1e6, 1e-4]), np.asarray([3e6, -1.0])
    other = clone(fitted).fit(X * scales + shifts, 1e5 * Y - 7)
    mean, std = fitted.predict(X, return_std=True)
    mean_2, std_2 = other.predict(X * scales + shifts, return_std=True)
    np.testing.assert_allclose(mean_2, 1e5 * mean - 7, rtol=1e-5)
    np.testing.assert_allclose(std_2, 1e5 * std, rtol=1e-5)
    np.testing.assert_allclose(other.lengthscales_, fitted.lengthscales_ * scales)
    np.testing.assert_allclose(other.elbo_, fitted.elbo_ - np.log(1e5), rtol=1e-6)
    moved = fitted.inducing_points_ * scales + shifts
    np.testing.assert_allclose(other.inducing_points_, moved, rtol=1e-6)


def test_a_row_far_from_all_others_has_the_prior(fitted):
    mean, std = fitted.predict([[1e300, 0.0], [1e120, 0.0]], return_std=True)
    assert_same(mean, fitted.y_mean_)
    assert std[0] == std[1] > fitted.predict(X, return_std=True)[1].max()


def test_a_weight_of_two_is_two_rows(fitted):
    weight = 1.0 + (np.arange(ROWS) % 3)
    one = clone(fitted).fit(X, Y, sample_weight=weight)
    other = clone(fitted).fit(
        np.repeat(X, weight.astype(int), 0), np.repeat(Y, weight.astype(int))
    )
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert one.n_rows_seen_ == weight.sum()


def test_frames_of_any_kind_are_the_same_table(fitted):
    names = ["width", "height"]
    mean = fitted.predict(X)
    for frame in (pd.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
        model = clone(fitted).fit(frame, frame[names[0]] * 0 + Y)
        assert list(model.feature_names_in_) == names
        assert_same(model.predict(frame), mean)
        assert "lengthscale of width" in str(model)
        assert "lengthscale of width" in model._repr_mimebundle_()["text/html"]


def test_what_it_says_is_in_the_units_of_the_table():
    model = GPRegressor(**SHORT).fit(X * 1000, Y * 50)
    said = str(model)
    shown = {
        name: float(f"{v:.3g}")
        for name, v in zip("01", model.lengthscales_, strict=True)
    }
    for name, value in shown.items():
        found = re.search(rf"lengthscale of x{name} +([\d.,e+]+)", said)
        assert found and float(found[1].replace(",", "")) == value > 100
    noise = re.search(r"noise \(deviation\) +([\d.e+]+)", said)
    assert noise and 2 < float(noise[1]) < 40
    for word in ("Matern52", "inducing inputs", "ELBO per row", "converged"):
        assert word in said


@pytest.mark.nightly
def test_sorted_rows_in_parts_are_learned_as_all_at_once():
    order = np.argsort(X[:, 0])
    inputs, targets = X[order].copy(), Y[order]
    # An input that is constant at first, of no effect in either case.
    inputs = np.c_[inputs, np.where(np.arange(ROWS) < ROWS // 2, 5.0, 6.0)]
    whole = GPRegressor(**SHORT).fit(inputs, targets)
    model = GPRegressor(**SHORT)
    for part in np.array_split(np.arange(ROWS), 3):
        model.partial_fit(inputs[part], targets[part])
    assert model.n_rows_seen_ == ROWS
    gap = whole.log_density(inputs, targets) - model.log_density(inputs, targets)
    assert gap.mean() < 0.2
    assert not is_constant(model.x_scale_).any()
    again = pickle.loads(pickle.dumps(model))
    assert not hasattr(again, "_online")
    again.partial_fit(inputs[:5], targets[:5])
    assert again.n_rows_seen_ == ROWS + 5
    # The rows that it keeps from now on do not stand for those before.
    assert again._online.num_data - again._online.unsampled == 5
    assert len(again._online.rows.x) == 5


def test_rounding_gives_a_constant_input_no_unit():
    rounded = np.where(np.arange(ROWS) % 2, 0.1 + 0.2, 0.3)
    model = GPRegressor(**SHORT).partial_fit(np.c_[X, rounded], Y)
    model.partial_fit(np.c_[X, rounded], Y)
    assert is_constant(model.x_scale_)[2]


def test_what_fails_changes_nothing():
    model = GPRegressor("gaussian", **SHORT).partial_fit(X[:40], Y[:40])
    before = model.predict(X)
    with pytest.raises(FitError, match="not finite"):
        model.partial_fit(X[40:] + 9, np.full(ROWS - 40, 1e300))
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_fit_forgets_what_was_learned_in_parts():
    model = GPRegressor(**SHORT).partial_fit(X[:20], Y[:20]).fit(X, Y)
    assert not hasattr(model, "_online")
    assert model.n_rows_seen_ == ROWS


@pytest.mark.nightly
def test_a_first_part_may_lack_a_class():
    model, y = clone(CLASSIFIERS["softmax"][0]), LABELS
    first = y != 2
    model.partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert model.predict_proba(X).shape == (ROWS, 3)
    model.partial_fit(X[~first], y[~first])
    assert (model.predict(X[~first]) == 2).mean() > 0.5


def test_tools_of_scikit_learn_take_them():
    search = GridSearchCV(GPRegressor(**SHORT), {"kernel": ["rbf", "matern32"]}, cv=2)
    assert search.fit(X, Y).best_score_ > 0.5
    y = np.where(Y > 0, "yes", "no")
    assert cross_val_score(GPClassifier(**SHORT), X, y, cv=2).mean() > 0.7
    assert (
        cross_val_score(
            GPClassifier(**SHORT), X, y, scoring="neg_log_loss", cv=2
        ).mean()
        > -0.6
    )
    calibrated = CalibratedClassifierCV(GPClassifier(**SHORT), cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.7


def test_a_run_that_is_too_short_says_so():
    with pytest.warns(ConvergenceWarning, match="use a larger max_iter"):
        model = GPRegressor(max_iter=3, n_inducing=16, verbose=False).fit(X, Y)
    assert not model.converged_ and "no: all steps taken; the ELBO still" in str(
        model
    ), str(model)


def test_other_files_are_refused(fitted, tmp_path):
    with jax.enable_x64(True):
        natgrad.gp.save(fitted.model_, tmp_path / "model")
    with pytest.raises(IncompatibleFileError, match="load models with natgrad.gp.load"):
        natgrad.sklearn.load(tmp_path / "model")
    with jax.enable_x64(True):
        wrong = {"estimator": "GPRegressor", "params": {}, "fitted": {}, "user": {}}
        FORMAT.write(tmp_path / "model", fitted.model_, wrong)
    with pytest.raises(CorruptFileError, match="invalid estimator"):
        natgrad.sklearn.load(tmp_path / "model")
