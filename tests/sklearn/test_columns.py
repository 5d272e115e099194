"""Columns that come with the target: exposures, trials, noise, bounds, weights."""

import pickle

import jax
import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import natgrad.sklearn
from natgrad.errors import InputError
from natgrad.gp import likelihoods
from natgrad.sklearn import GPClassifier, GPRegressor
from tests.variants import variants


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")

SHORT = {"max_iter": 30, "n_inducing": 12, "verbose": 0}
RNG = np.random.default_rng(0)
ROWS = 80
F = pd.DataFrame({"a": RNG.uniform(-2, 2, ROWS), "b": RNG.uniform(-2, 2, ROWS)})
CURVE = (np.sin(2 * F.a) + 0.5 * F.b).to_numpy()
EXPOSURE = RNG.uniform(1, 20, ROWS)
COUNTS = RNG.poisson(EXPOSURE * np.exp(CURVE)).astype(float)
TRIALS = RNG.integers(1, 30, ROWS).astype(float)
SUCCESSES = RNG.binomial(TRIALS.astype(int), 1 / (1 + np.exp(-CURVE))).astype(float)
NOISE = RNG.uniform(0.1, 1, ROWS)
NOISY = CURVE + NOISE * RNG.standard_normal(ROWS)
LIFE = np.exp(CURVE) * RNG.weibull(2.0, ROWS)
END = RNG.uniform(0.5, 5, ROWS)
SEEN = (LIFE < END).astype(float)
SHORTENED = np.minimum(LIFE, END)
CASES = {
    "exposure": ("poisson", {"exposure": EXPOSURE}, COUNTS),
    "offset": ("negative-binomial", {"offset": np.log(EXPOSURE)}, COUNTS),
    "positive": ("gamma", {"exposure": EXPOSURE}, EXPOSURE * LIFE),
    "trials": ("auto", {"trials": TRIALS}, SUCCESSES),
    "noise_sd": ("auto", {"noise_sd": NOISE}, NOISY),
    "event": ("auto", {"event": SEEN}, SHORTENED),
    "censored": ("student-t", {"lower": NOISY - NOISE, "upper": NOISY + NOISE}, NOISY),
    "weight": ("gaussian", {"weight": np.ceil(EXPOSURE / 10)}, NOISY),
}


@pytest.fixture(autouse=True)
def as_a_user():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(params=variants(CASES, ["noise_sd", "event"]))
def case(request):
    return CASES[request.param]


def framed(columns):
    return F.assign(**{name.upper(): column for name, column in columns.items()})


def made(likelihood, columns, **more):
    named = {name: name.upper() for name in columns}
    return GPRegressor(likelihood, columns=named, **SHORT, **more)


def assert_same(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_all_kinds_of_tables_give_the_same(case):
    likelihood, columns, y = case
    frame = framed(columns)
    model = made(likelihood, columns).fit(frame, y)
    assert list(model.feature_names_in_) == ["a", "b"]
    expected = [model.predict(frame), model.log_density(frame, y)]
    assert all(np.isfinite(each).all() for each in expected)
    arrow = pyarrow.Table.from_pandas(frame)
    for table in (polars.from_arrow(arrow), arrow):
        again = clone(model).fit(table, y)
        assert_same(again.predict(table), expected[0])
        assert_same(again.log_density(table, y), expected[1])
    places = {name: 2 + place for place, name in enumerate(columns)}
    numbers = frame.to_numpy()
    again = clone(model).set_params(columns=places).fit(numbers, y)
    assert_same(again.predict(numbers), expected[0])


def test_files_and_pickles_keep_them(case, tmp_path):
    likelihood, columns, y = case
    frame = framed(columns)
    model = made(likelihood, columns).fit(frame, y)
    model.save(tmp_path / "model.natgrad")
    loaded = natgrad.sklearn.load(tmp_path / "model.natgrad")
    assert loaded.columns == model.columns
    for again in (loaded, pickle.loads(pickle.dumps(model))):
        assert_same(again.predict(frame), model.predict(frame))
        assert_same(again.log_density(frame, y), model.log_density(frame, y))


def test_they_go_through_the_tools_of_scikit_learn():
    frame = framed({"exposure": EXPOSURE})
    model = made("poisson", {"exposure": None})
    inside = make_pipeline(FunctionTransformer(), model)
    assert np.isfinite(cross_val_score(inside, frame, COUNTS, cv=2)).all()


def test_a_prediction_is_for_what_the_table_has():
    likelihood, columns, y = CASES["exposure"]
    frame = framed(columns)
    model = made(likelihood, columns).fit(frame, y)
    rate, std = model.predict(F, return_std=True)
    assert_same(model.predict(frame), EXPOSURE * rate)
    assert (model.predict(F, quantiles=[0.9]) <= rate[:, None] + 9 * std[:, None]).all()
    likelihood, columns, y = CASES["trials"]
    frame = framed(columns)
    model = made(likelihood, columns).fit(frame, y)
    assert isinstance(model.model_.likelihood, likelihoods.Binomial)
    assert_same(model.predict(frame), TRIALS * model.predict(F))
    draws = model.sample_y(frame, 50)
    assert (draws <= TRIALS[:, None]).all() and (draws > 1).any()
    likelihood, columns, y = CASES["noise_sd"]
    frame = framed(columns)
    model = made(likelihood, columns).fit(frame, y)
    less, more = (model.predict(each, return_std=True)[1] for each in (F, frame))
    assert_same(more**2, less**2 + NOISE**2)


def test_a_column_of_weights_is_sample_weight():
    likelihood, columns, y = CASES["weight"]
    frame, weight = framed(columns), columns["weight"]
    model = made(likelihood, columns).fit(frame, y)
    other = GPRegressor(likelihood, **SHORT).fit(F, y, sample_weight=weight)
    assert_same(model.predict(frame), other.predict(F))


def test_units_are_the_users():
    likelihood, columns, y = CASES["noise_sd"]
    small = made(likelihood, columns).fit(framed(columns), y)
    large = {"noise_sd": 1000 * NOISE}
    big = made(likelihood, large).fit(framed(large), 1000 * y + 5)
    one, other = small.predict(framed(columns)), big.predict(framed(large))
    np.testing.assert_allclose(1000 * one + 5, other, rtol=1e-5, atol=1e-2)
    # An offset is in the units of the target too.
    shift = {"offset": 100 * EXPOSURE}
    moved = made("gaussian", shift).fit(framed(shift), y + 100 * EXPOSURE)
    plain = GPRegressor("gaussian", **SHORT).fit(F, y)
    gap = moved.predict(framed(shift)) - 100 * EXPOSURE - plain.predict(F)
    assert np.abs(gap).max() < 1


def test_a_lifetime_that_was_seen_is_a_lifetime():
    everything = {"event": np.ones(ROWS)}
    one = made("weibull", everything).fit(framed(everything), LIFE)
    other = GPRegressor("weibull", **SHORT).fit(F, LIFE)
    # The rows of the second are sorted, and its inducing inputs others.
    np.testing.assert_allclose(one.predict(F), other.predict(F), rtol=0.05)
    likelihood, columns, y = CASES["event"]
    model = made(likelihood, columns).fit(framed(columns), y)
    assert isinstance(model.model_.likelihood, likelihoods.Censored)
    # To drop the rows that were not seen to end makes lives too short.
    seen = SEEN > 0
    naive = GPRegressor("weibull", **SHORT).fit(F[seen], y[seen])
    assert model.predict(F).mean() > 1.05 * naive.predict(F).mean()
    # Of a row that ends later, the log density is that of surviving.
    log_density = model.log_density(framed(columns), y)
    assert_same(np.exp(log_density[~seen]), 1 - model.cdf(F[~seen], y[~seen]))


UPDATED = ("exposure", "noise_sd", "censored", "weight")


@pytest.mark.parametrize("name", variants(UPDATED, ["exposure"]))
@pytest.mark.filterwarnings("ignore:12 inducing inputs cannot")
def test_updates_take_them(name):
    likelihood, columns, y = CASES[name]
    frame = framed(columns)
    whole = made(likelihood, columns).fit(frame, y)
    parts = made(likelihood, columns).fit(frame[:60], y[:60])
    before = parts.log_density(frame, y).mean()
    parts.partial_fit(frame[60:], y[60:])
    slack = 0.0 if name == "exposure" else 0.2
    assert parts.log_density(frame, y).mean() > before - slack
    assert parts.n_rows_seen_ == whole.n_rows_seen_


@pytest.mark.nightly
def test_updates_centre_what_is_left_of_the_offset():
    offset = RNG.normal(1000, 10, ROWS)
    frame = F.assign(OFFSET=offset)
    model = made("gaussian", {"offset": offset})
    for part in (slice(None, 40), slice(40, None)):
        model.partial_fit(frame[part], offset[part] + NOISY[part])
    np.testing.assert_allclose(model.y_mean_, NOISY.mean(), atol=1e-9)
    far = pd.DataFrame({"a": [99.0], "b": [99.0], "OFFSET": [1000.0]})
    assert abs(model.predict(far)[0] - 1000) < 2


@pytest.mark.nightly
def test_classifiers_take_weights_and_offsets():
    frame = F.assign(w=np.ceil(EXPOSURE / 10), up=np.where(F.a > 0, 3.0, 0.0))
    labels = CURVE > 0
    one = GPClassifier(columns={"weight": "w"}, **SHORT).fit(
        frame[["a", "b", "w"]], labels
    )
    other = GPClassifier(**SHORT).fit(F, labels, sample_weight=frame.w)
    assert_same(one.predict_proba(frame[["a", "b", "w"]]), other.predict_proba(F))
    raised = GPClassifier(columns={"offset": "up"}, **SHORT)
    raised.fit(frame[["a", "b", "up"]], labels)
    with_offset = raised.predict_proba(frame[["a", "b", "up"]])[:, 1]
    without = raised.predict_proba(F)[:, 1]
    assert (with_offset >= without - 1e-12).all() and with_offset.max() > without.max()


def test_what_cannot_be_is_named():
    frame = framed({"exposure": EXPOSURE, "event": SEEN})
    wrong = {
        "columns is 'E'; it should be a dictionary": "E",
        "columns has 'exposur'.*did you mean 'exposure'": {"exposur": "E"},
        "the column of 'exposure' is 1.5": {"exposure": 1.5},
        "columns has 'lower'; it should have 'event', or": {"lower": "EVENT"},
        "X has no column 'years', which should be the 'exposure'": {
            "exposure": "years"
        },
    }
    for message, columns in wrong.items():
        with pytest.raises(InputError, match=message):
            GPRegressor("poisson", columns=columns, **SHORT).fit(frame, COUNTS)
    with pytest.raises(InputError, match="exposures should be finite and above 0"):
        made("poisson", {"exposure": 0}).fit(
            framed({"exposure": EXPOSURE - 1e3}), COUNTS
        )
    with pytest.raises(InputError, match="StudentT takes no column 'exposure'"):
        made("student-t", {"exposure": 0}).fit(framed({"exposure": EXPOSURE}), NOISY)
    with pytest.raises(InputError, match="the event of row 0 is [78]"):
        made("weibull", {"event": 0}).fit(framed({"event": SEEN + 7}), LIFE)
    with pytest.raises(InputError, match="trials should be 1, 2, 3"):
        made("binomial", {"trials": 0}).fit(
            framed({"trials": SUCCESSES - 1}), SUCCESSES
        )
