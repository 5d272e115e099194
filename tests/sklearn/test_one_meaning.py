"""A likelihood means the same by name, as an object, in a file and in the command."""

import functools

import jax
import numpy as np
import pandas as pd
import pytest

from natgrad import report
from natgrad._cli.training import make_estimator, train
from natgrad._config import Run
from natgrad._registry import names
from natgrad.data._prepare import prepare
from natgrad.gp import likelihoods
from natgrad.gp.likelihoods import Support
from natgrad.sklearn import (
    GPClassifier,
    GPOrdinal,
    GPRegressor,
    _targets as targets,
    load,
)
from tests.points import EXTENSIONS
from tests.variants import variants


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

SHORT = {"max_iter": 4, "n_inducing": 16}
ROWS = 64
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-2, 2, (ROWS, 2)), columns=["a", "b"])
F = np.sin(2 * X.a.to_numpy()) + 0.5 * X.b.to_numpy() + 0.2 * RNG.standard_normal(ROWS)
LARGE = 5000 + 1000 * F  # in units far from those of a standardized target
COUNTS, GRADES = np.floor(10 * np.exp(F)), np.digitize(F, [-0.5, 0.5])

EDGES = targets.ordinal(GRADES, np.ones(ROWS), 3).likelihood
CASES = {
    "gaussian": (GPRegressor, LARGE, lambda: likelihoods.Gaussian(LARGE.var())),
    "student-t": (GPRegressor, LARGE, lambda: likelihoods.StudentT(LARGE.std())),
    "heteroskedastic": (GPRegressor, LARGE, likelihoods.HeteroskedasticGaussian),
    "gamma": (GPRegressor, 1000 * np.exp(F), likelihoods.Gamma),
    "beta": (GPRegressor, 1 / (1 + np.exp(-F)), lambda: likelihoods.Beta(10.0)),
    "bernoulli": (GPClassifier, np.where(F > 0, "yes", "no"), likelihoods.Bernoulli),
    "softmax": (GPClassifier, GRADES, lambda: likelihoods.Softmax(3)),
    "robust-max": (GPClassifier, GRADES, lambda: likelihoods.RobustMax(3)),
    "ordinal": (GPOrdinal, GRADES + 3, lambda: EDGES),
}
"""The estimator, the targets, and the object of the name, in their units."""

TARGETS = {
    Support.REAL: F,
    Support.POSITIVE: 1000 * np.exp(F),
    Support.UNIT: 1 / (1 + np.exp(-F)),
    Support.COUNT: COUNTS,
    Support.SUCCESSES: 1.0 * (F > 0),
}
for name in names("regression"):
    start = functools.partial(targets.make, name)
    CASES.setdefault(name, (GPRegressor, TARGETS[start().support], start))


def written(path, x, y):
    x.assign(y=y).to_parquet(path, row_group_size=64)
    return str(path)


def predictions(model):
    if hasattr(model, "classes_"):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


# Each is compiled anew: units, no units and classes are enough for every day.
OFTEN = ("student-t", "gamma", "ordinal")


@pytest.mark.parametrize("name", variants(CASES, OFTEN))
def test_a_likelihood_means_the_same_however_it_is_given(name, tmp_path):
    kind, y, make = CASES[name]
    named = kind(name, verbose=False, **SHORT).fit(X, y)
    expected = predictions(named)
    given = kind(make(), verbose=False, **SHORT).fit(X, y)
    given.save(tmp_path / "given")
    path = written(tmp_path / "table.parquet", X, y)
    run = Run(path, "y", likelihood=name, num_inducing=16, steps=4)
    assert train(run, tmp_path / "out", *[False] * 3) == 0
    for model in (
        given,
        load(tmp_path / "given"),
        load(tmp_path / "out" / "model.natgrad"),
    ):
        np.testing.assert_allclose(predictions(model), expected, rtol=1e-9)
        assert (model.y_mean_, model.y_scale_) == (named.y_mean_, named.y_scale_)
        np.testing.assert_allclose(model.elbo_, named.elbo_, rtol=1e-9)
    # All that is shown of it finds what it asks for.
    learned = named.model_.likelihood.summary(float(named.y_scale_))
    assert all(label in str(named) for label, _ in learned)
    assert report.write(named, X, y, tmp_path / "page.html").exists()
    if kind is GPRegressor:
        low, high = named.predict(X, quantiles=[0.1, 0.9]).T
        assert (low <= high).all()


def test_a_class_of_the_user_that_says_what_its_target_is_has_any_unit(tmp_path):
    kind = EXTENSIONS["LogNormal"]
    y = np.exp(F)
    one, other = (
        GPRegressor(kind(), verbose=False, **SHORT).fit(X, factor * y)
        for factor in (1.0, 1024.0)
    )
    levels = [0.1, 0.5, 0.9]
    for options in ({}, {"quantiles": levels}):
        expected = 1024 * one.predict(X, **options)
        np.testing.assert_allclose(other.predict(X, **options), expected, rtol=1e-9)
    assert "noise (of the log)" in str(one)
    other.save(tmp_path / "model")
    loaded = load(tmp_path / "model", custom={"LogNormal": kind})
    np.testing.assert_array_equal(loaded.predict(X), other.predict(X))
    assert report.write(loaded, X, 1024 * y, tmp_path / "page.html").exists()


def test_the_parameters_of_an_object_are_in_the_units_of_the_target(tmp_path):
    for kind, factor in ((likelihoods.StudentT, 1e3), (likelihoods.Gaussian, 1e6)):
        one = GPRegressor(kind(0.5), verbose=False, **SHORT).fit(X, F)
        other = GPRegressor(kind(0.5 * factor), verbose=False, **SHORT)
        other.fit(X, 1e3 * F)
        np.testing.assert_allclose(
            1e3 * predictions(one), predictions(other), rtol=1e-7
        )
        kept = []
        for model in (one, other):
            model.save(tmp_path / "model")
            (log_noise,) = jax.tree.leaves(load(tmp_path / "model").likelihood)
            kept.append(float(np.exp(log_noise)))
        np.testing.assert_allclose(factor * kept[0], kept[1], rtol=1e-7)


def test_a_start_in_other_units_ends_in_the_same_place():
    named = GPRegressor("student-t", max_iter=60, n_inducing=16, verbose=False)
    given = GPRegressor(
        likelihoods.StudentT(), max_iter=60, n_inducing=16, verbose=False
    )
    named, given = named.fit(X, LARGE), given.fit(X, LARGE)
    assert abs(named.elbo_ - given.elbo_) < 0.02
    error = predictions(named)[0] - predictions(given)[0]
    assert np.abs(error).max() < 0.1 * LARGE.std()


def test_the_command_leaves_open_what_the_estimator_does(tmp_path):
    x = pd.DataFrame(RNG.standard_normal((300, 2)), columns=["a", "b"])
    path = written(tmp_path / "table.parquet", x, x.a + RNG.standard_t(2, 300))
    estimator = make_estimator(prepare(Run(path, "y")).run)
    assert estimator.get_params() == GPRegressor().get_params()


@pytest.mark.nightly
def test_auto_chooses_the_same_in_memory_on_disk_and_in_the_command(tmp_path):
    x = pd.DataFrame(RNG.uniform(-2, 2, (400, 2)), columns=["a", "b"])
    y = np.sin(2 * x.a) + np.exp(1.5 * x.b - 1.5) * RNG.standard_normal(400)
    (tmp_path / "data").mkdir()
    path = written(tmp_path / "data" / "table.parquet", x, y)
    estimator = GPRegressor(max_iter=30, verbose=False).fit(x, y)
    models = [estimator]
    for data, out in ((path, "table"), (str(tmp_path / "data"), "disk")):
        run = Run(data, "y", steps=30)
        assert train(run, tmp_path / out, *[False] * 3) == 0
        models.append(load(tmp_path / out / "model.natgrad"))
    kinds = {type(model.model_.likelihood) for model in models}
    assert kinds == {likelihoods.HeteroskedasticGaussian}
    assert len({model.n_inducing_ for model in models}) == 1
    assert [model.likelihood for model in models] == ["auto"] * 3
