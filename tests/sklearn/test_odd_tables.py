"""Few rows, constant columns and hostile tables: no certainty that data cannot give.

The hostile ones are some of experiments/hostile_fits.py.
"""

import math
import runpy
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from natgrad.data import Parquet, scan
from natgrad.data._prepare import Stream
from natgrad.errors import InputWarning
from natgrad.gp import likelihoods
from natgrad.sklearn import GPRegressor, load
from natgrad.sklearn._targets import without_copies
from tests.variants import variants


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
hostile = SimpleNamespace(**runpy.run_path(str(EXPERIMENTS / "hostile_fits.py")))

RNG = np.random.default_rng(0)
ROWS = 40
X = RNG.standard_normal((ROWS, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] / 2 + 0.3 * RNG.standard_normal(ROWS)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_leave_doubt_and_a_warning(rows):
    with pytest.warns(InputWarning, match="too few to tell noise from signal"):
        model = GPRegressor(verbose=False).fit(X[:rows], Y[:rows])
    size = np.std(Y[:rows]) if rows > 1 else abs(Y[0])
    std = model.predict(X[rows:], return_std=True)[1]
    assert (std > 0.25 * size).all()
    assert model.log_density(X[rows:], Y[rows:]).mean() > -10


def test_two_values_are_taken_for_classes_in_a_warning():
    with pytest.warns(InputWarning, match="two values only.* GPClassifier"):
        GPRegressor(verbose=False).fit(X, np.where(Y > 0, 5.0, -1.0))


class Laplace(likelihoods.AbstractQuadrature):
    log_scale: jax.Array

    def log_prob(self, f, y):
        error = jnp.abs(y.astype(f.dtype) - f) * jnp.exp(-self.log_scale)
        return -error - self.log_scale - math.log(2)


def test_a_likelihood_of_your_own_that_cannot_reach_the_targets_is_warned_of():
    x = np.linspace(0, 3, 60)[:, None]
    y = np.sin(3 * x[:, 0]) + np.random.default_rng(0).laplace(0, 0.1, 60)
    own = Laplace(jnp.array(-2.0), nodes=20)
    settings = {"n_inducing": 10, "max_iter": 60, "verbose": False}
    GPRegressor(own, **settings).fit(x, y)
    with pytest.warns(InputWarning, match=r"worse .* by \d\.\d nats per row"):
        GPRegressor(own, **settings).fit(x, y + 1000)


def test_a_table_that_repeats_itself_is_learned_as_once():
    """The evidence has no bound where rows agree exactly."""
    once = GPRegressor(verbose=False).fit(X, Y)
    twice = GPRegressor(verbose=False)
    with pytest.warns(InputWarning, match="40 of 80 rows are copies"):
        twice.fit(np.concatenate([X, X]), np.concatenate([Y, Y]))
    for found, wanted in zip(
        twice.predict(X[::3] + 0.1, return_std=True),
        once.predict(X[::3] + 0.1, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)
    assert twice.n_rows_seen_ == 80


def test_copies_are_found_and_rows_measured_again_are_not():
    x, y = np.repeat(X, 2, axis=0), np.repeat(Y, 2)
    weight = np.arange(1.0, 81.0)
    *rows, copies = without_copies(x, y, weight)
    assert copies == 40
    for found, wanted in zip(rows, (X, Y, weight[1::2]), strict=True):
        np.testing.assert_array_equal(found, wanted)

    def is_kept(x, y):
        return without_copies(x, y, np.ones(len(y)))[-1] == 0

    again = y + 0.01 * (np.arange(80) % 2)
    assert is_kept(x, again)  # with noise
    assert is_kept(X[:, :1].round(), Y.round())  # rounded, on few values
    assert is_kept(np.repeat(X[:5], 20, axis=0), np.repeat(Y[:5], 20))  # a design
    many = RNG.standard_normal((200, 3))
    assert is_kept(np.append(many, many[:1], 0), np.append(many[:, 0], many[0, 0]))


def test_rows_without_noise_are_known_to_be():
    # Forrester's function, and two columns that do not matter.
    x = np.linspace(0, 1, 16)[:, None] * [1, 0, 0]
    y = (6 * x[:, 0] - 2) ** 2 * np.sin(12 * x[:, 0] - 4)
    model = GPRegressor(verbose=False).fit(x, y)
    assert np.sqrt(float(model.model_.likelihood.variance)) < 0.1


def test_a_constant_target_has_the_units_of_its_size():
    models = [
        GPRegressor(verbose=False).fit(X, np.full(ROWS, size)) for size in (1e-12, 1e12)
    ]
    small, large = (model.predict(X, return_std=True)[1] for model in models)
    np.testing.assert_allclose(small * 1e24, large, rtol=1e-6)


@pytest.fixture(scope="module")
def with_constant():
    frame = pd.DataFrame(X, columns=["a", "fixed", "b"]).assign(fixed=0.1)
    return GPRegressor(verbose=False).fit(frame, Y), frame


def test_a_constant_column_changes_no_prediction(with_constant):
    model, frame = with_constant
    without = GPRegressor(verbose=False).fit(X[:, [0, 2]], Y)
    for moved in (frame, frame.assign(fixed=7.0), frame.assign(fixed=-1e9)):
        for one, other in zip(
            model.predict(moved, return_std=True),
            model.predict(frame, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
    # Its own lengthscale begins at √3 and not at √2, and so the two are only near.
    gap = model.predict(frame) - without.predict(X[:, [0, 2]])
    assert np.abs(gap).max() < 0.1 * Y.std()


def test_a_constant_column_is_not_among_those_that_matter(with_constant, tmp_path):
    model, frame = with_constant
    model.save(tmp_path / "model")
    for each in (model, load(tmp_path / "model")):
        assert "lengthscale of fixed" not in str(each)
        assert "constant inputs, without effect  fixed" in str(each)
        assert np.isinf(each.lengthscales_).tolist() == [False, True, False]
        np.testing.assert_allclose(each.inducing_points_[:, 1], 0.1)
        moved = each.predict(frame.assign(fixed=7.0))
        np.testing.assert_array_equal(moved, model.predict(frame))


def test_a_pixel_that_was_always_black_has_no_effect():
    x = (X > 0) * [1.0, 1.0, 0.0]
    model = GPRegressor(verbose=False).fit(x, Y)
    white = x + [0.0, 0.0, 1.0]
    np.testing.assert_array_equal(model.predict(x), model.predict(white))


@pytest.mark.filterwarnings("ignore:the ELBO still")
def test_a_constant_column_on_disk_has_no_effect(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "fixed", "b"]).assign(fixed=0.1, y=Y)
    frame.to_parquet(tmp_path / "rows.parquet")
    rows = Parquet(tmp_path / "rows.parquet", "y", batch_size=16, shards=1)
    model = GPRegressor("gaussian", n_inducing=8, max_iter=3, verbose=False)
    model._fit(Stream(rows, scan(tmp_path / "rows.parquet", "y")), None)
    inputs = frame.drop(columns="y")
    moved = model.predict(inputs.assign(fixed=7.0))
    np.testing.assert_array_equal(moved, model.predict(inputs))
    assert "constant inputs, without effect  fixed" in str(model)


CASES = [
    ("GPRegressor", "plain", "an outlier"),
    ("GPRegressor", "duplicates", "heavy tails"),
    ("GPRegressor", "plain", "heavy tails"),
    ("GPRegressor", "near duplicates", "size 1e-12"),
    ("GPRegressor", "constant 1e12", "size 1e12"),
    ("GPRegressor", "mixed sizes", "two values"),
    ("GPRegressor", "rank 1", "far from 0"),
    ("GPRegressor", "heavy tails", "skewed"),
    ("GPRegressor", "bools", "noise alone"),
    ("GPRegressor", "duplicates", "all equal"),
]
OTHERS = [  # which take longer to compile
    ("gp.fit", "2 rows", "plain"),
    ("gp.fit", "plain", "noise alone"),
    ("GPClassifier", "plain", "1 row of a class"),
    ("GPOrdinal", "plain", "10"),
]


@pytest.mark.parametrize("names", variants([*CASES, *OTHERS], CASES))
def test_hostile_tables_are_fitted_and_not_too_certain(names):
    found = hostile.outcome(hostile.Case(*names, seed=0))
    assert found.verdict in ("good", "warned", "refused"), found
