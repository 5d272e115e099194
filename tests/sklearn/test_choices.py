"""What is chosen for the user: the noise, the inducing inputs, how they are found."""

import contextlib
import signal
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from natgrad.data import Batch
from natgrad.errors import InputWarning
from natgrad.gp import _fit, exact, kernels, likelihoods
from natgrad.sklearn import (
    GPClassifier,
    GPRegressor,
    _gaussian as gaussian,
    _training,
    _training as training,
)
from natgrad.sklearn._summary import _quality
from natgrad.sklearn._targets import CONSTANT, Targets, regression
from natgrad.train import stop_on_signals
from natgrad.train._history import History, Record
from natgrad.train._loop import Fitted, run


pytestmark = pytest.mark.filterwarnings("ignore:the ELBO still")


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1], rng


@pytest.fixture(scope="module")
def few():
    x, f, rng = table(90)
    y = 5 + 3 * (f + 0.1 * rng.standard_normal(90))
    return x, y, GPRegressor(verbose=False).fit(x, y)


def closed_form(model, x, y, at):
    """The mean and deviation of exact regression, with the model's hyperparameters."""
    scale = lambda rows: (rows - model.x_mean_) / model.x_scale_ / lengthscale
    lengthscale = np.exp(np.asarray(model.model_.kernel.log_lengthscale))
    variance = float(np.exp(model.model_.kernel.log_variance))
    noise = float(np.exp(model.model_.likelihood.log_variance))

    def matern(a, b):
        r = np.sqrt(5 * ((scale(a)[:, None] - scale(b)[None]) ** 2).sum(-1))
        return variance * (1 + r + r**2 / 3) * np.exp(-r)

    inverse = np.linalg.inv(matern(x, x) + noise * np.eye(len(x)))
    cross = matern(at, x)
    mean = cross @ inverse @ (y - model.y_mean_) + model.y_mean_
    var = variance + noise - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    return mean, np.sqrt(var) * model.y_scale_


def test_few_rows_of_gaussian_noise_are_learned_exactly(few):
    x, y, model = few
    assert model.n_inducing_ == 96 and model.converged_
    at = table(7, seed=1)[0]
    for found, expected in zip(
        model.predict(at, return_std=True), closed_form(model, x, y, at), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(model.y_scale_ * 0.1, 0.3, rtol=0.2)


def test_a_kernel_of_scikit_learn_is_as_one_of_natgrad():
    x, f, _ = table(25)
    found = [
        GPRegressor("gaussian", kernel=kernel, verbose=False).fit(x, f).elbo_
        for kernel in (sklearn_kernels.RBF(0.7), kernels.RBF(0.7))
    ]
    assert found[0] == found[1]


def test_units_and_repeated_rows_do_not_matter(few):
    x, y, model = few
    scaled = GPRegressor(verbose=False).fit(x * [1e3, 1e-3] + 7, 100 * y)
    at = table(7, seed=1)[0]
    np.testing.assert_allclose(
        scaled.predict(at * [1e3, 1e-3] + 7), 100 * model.predict(at), rtol=1e-4
    )
    with pytest.warns(InputWarning, match="90 of 180 rows are copies"):
        twice = GPRegressor(verbose=False).fit(np.tile(x, (2, 1)), np.tile(y, 2))
    np.testing.assert_allclose(twice.predict(at), model.predict(at), rtol=1e-4)


@pytest.mark.nightly
def test_a_large_table_of_few_rows_follows_fine_detail():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (300, 1))
    f = np.sin(50 * x[:, 0])
    model = GPRegressor(verbose=False).fit(x, f + 0.05 * rng.standard_normal(300))
    inside = np.linspace(0.05, 0.95, 200)[:, None]
    error = model.predict(inside) - np.sin(50 * inside[:, 0])
    assert np.sqrt(np.mean(error**2)) < 0.05


@pytest.mark.nightly
@pytest.mark.parametrize("noise", ["Gaussian", "StudentT", "HeteroskedasticGaussian"])
@pytest.mark.parametrize(("rows", "inducing"), [(256, "auto"), (300, 20)])
def test_the_noise_of_many_rows_is_found(noise, rows, inducing):
    x, f, rng = table(rows)
    spread = {
        "Gaussian": rng.standard_normal(rows),
        "StudentT": rng.standard_t(1.5, rows),
        "HeteroskedasticGaussian": np.exp(1.5 * x[:, 1]) * rng.standard_normal(rows),
    }
    model = GPRegressor(n_inducing=inducing, max_iter=5 * rows, verbose=False)
    model.fit(x, f + 0.2 * spread[noise])
    assert type(model.model_.likelihood).__name__ == noise
    if (inducing, noise) == ("auto", "Gaussian"):
        assert model.n_inducing_ == 304  # none was better than the exact posterior


def test_of_short_runs_the_one_that_ends_highest_is_chosen(monkeypatch):
    x, y, _ = table(8)
    bounds = {likelihoods.Gaussian: (3.0, 1.0), likelihoods.StudentT: (0.0, 2.0)}

    def run(rule, start, data, **options):
        history = History()
        said = bounds[type(start.likelihood)]
        history.records = [Record(step, 0.0, bound) for step, bound in enumerate(said)]
        return Fitted(start, history)

    monkeypatch.setattr(training, "run", run)
    candidates = [Targets(kind()) for kind in bounds]
    estimator = GPRegressor(n_inducing=4, verbose=False)
    estimator.x_scale_ = np.ones(x.shape[1])
    rows = Batch(x, y, np.ones(len(y)))
    for order in (candidates, candidates[::-1]):
        runs, _ = training._race(estimator, rows, order, 0, len(y))
        assert isinstance(runs[-1].params.likelihood, likelihoods.StudentT)


@pytest.mark.parametrize("estimator", [GPRegressor, GPClassifier])
def test_who_interrupts_the_first_part_of_a_run_ends_all_of_it(estimator, monkeypatch):
    x, f, _ = table(1200)
    y = f if estimator is GPRegressor else f > 0
    runs = []

    def interrupted(*given, **options):
        runs.append(given)
        ctrl_c = lambda record, _: signal.raise_signal(signal.SIGINT)
        return run(*given, **{**options, "callbacks": [ctrl_c]})

    for module in (exact, _fit, _training):
        monkeypatch.setattr(module, "run", interrupted)
    # The first part alone would take hours.
    model = estimator(max_iter=10**8, verbose=False).fit(x, y)
    assert len(runs) == 1
    assert model.message_.startswith("interrupted")
    assert model.n_iter_ < 10**7
    assert np.isfinite(model.predict(x)).all()


LATER = (GPRegressor(), GPRegressor("gaussian"), GPClassifier())


@pytest.mark.parametrize("is_asked_to_stop", [False, True])
@pytest.mark.parametrize("estimator", LATER, ids=repr)
def test_ctrl_c_before_the_first_step_of_a_later_part_keeps_the_earlier(
    estimator, is_asked_to_stop, monkeypatch
):
    x, f, _ = table(300)
    y = f > 0 if isinstance(estimator, GPClassifier) else f
    runs = []

    def interrupted(*given, **options):
        runs.append(given)
        if len(runs) == 2:
            signal.raise_signal(signal.SIGINT)
        return run(*given, **options)

    for module in (exact, _fit, _training):
        monkeypatch.setattr(module, "run", interrupted)
    stops = stop_on_signals() if is_asked_to_stop else contextlib.nullcontext()
    with stops:
        model = clone(estimator).set_params(max_iter=30, verbose=False).fit(x, y)
    assert len(runs) == 2
    assert model.message_.startswith("interrupted")
    assert np.isfinite(model.predict(x)).all()


def test_ctrl_c_in_a_race_keeps_the_best_so_far(monkeypatch):
    x, f, rng = table(300)
    y, runs = f + 0.1 * rng.standard_normal(300), []

    def interrupted(*given, **options):
        runs.append(given)
        ctrl_c = lambda record, _: signal.raise_signal(signal.SIGINT)
        calls = [ctrl_c] if len(runs) == 2 else []
        return run(*given, **{**options, "callbacks": calls})

    monkeypatch.setattr(_training, "run", interrupted)
    model = GPRegressor(verbose=False).fit(x, y)
    assert len(runs) == 2 and isinstance(runs[1][1].likelihood, likelihoods.StudentT)
    assert isinstance(model.model_.likelihood, likelihoods.Gaussian)
    assert model.message_ == "interrupted" and not model.converged_


def test_ctrl_c_in_the_first_part_of_a_run_that_was_asked_to_stop_keeps_it(monkeypatch):
    x, f, _ = table(300)
    runs = []

    def interrupted(*given, **options):
        runs.append(given)
        ctrl_c = lambda record, _: signal.raise_signal(signal.SIGINT)
        return run(*given, **{**options, "callbacks": [ctrl_c]})

    monkeypatch.setattr(exact, "run", interrupted)
    with stop_on_signals():
        model = GPRegressor("gaussian", verbose=False).fit(x, f)
    assert len(runs) == 1 and model.message_.startswith("interrupted")
    assert np.isfinite(model.predict(x)).all()


def test_columns_in_one_unit_share_a_scale_and_others_do_not():
    rng = np.random.default_rng(0)
    lit = rng.uniform(size=(200, 6)) < [0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    pixels = np.where(lit, 255.0, 0.0)
    target = pixels[:, 0] / 255
    model = GPRegressor("gaussian", max_iter=3, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scales = model.fit(pixels, target).x_scale_
        own = model.fit(pixels * [1, 2, 3, 4, 5, 6], target).x_scale_
    together = np.sqrt(pixels[:, :5].var(0).mean())  # what never varies has no say
    shared = np.full(5, together)
    np.testing.assert_allclose(scales, [*shared, CONSTANT], rtol=1e-12)
    each = pixels.std(0) * [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(own, np.where(each > 0, each, CONSTANT), rtol=1e-12)


def rough(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(x[:, 1]) + 0.6 * np.sign(np.sin(8 * x[:, 0]))
    return x, 10 + 5 * (y + 0.05 * rng.standard_normal(rows))


@pytest.mark.nightly
def test_more_rows_than_an_exact_fit_takes_get_many_inducing_inputs(monkeypatch):
    monkeypatch.setattr(gaussian, "MOST_INDUCING", 400)
    (x, y), (at, new) = rough(1300), rough(500, seed=1)
    model = GPRegressor(verbose=0).fit(x, y)
    assert type(model.model_.likelihood) is likelihoods.Gaussian
    assert model.n_inducing_ == 400 and model.converged_
    found = model.log_density(at, new).mean()
    few = GPRegressor("gaussian", n_inducing=100, verbose=0).fit(x, y)
    assert found > few.log_density(at, new).mean() + 0.3
    name, shown = _quality(model)
    assert name == "log density of held-out rows"
    np.testing.assert_allclose(float(shown), found, atol=0.5)  # of 130 rows
    again = GPRegressor(verbose=0).fit(x, y)
    np.testing.assert_array_equal(again.predict(at), model.predict(at))


@pytest.mark.parametrize(
    "options",
    [
        {"n_inducing": 40},
        {"batch_size": 64},
        {"minutes": 0.001},
        {"likelihood": "student-t"},
    ],
)
def test_many_inducing_inputs_unless_the_user_chose_otherwise(options):
    x, y = rough(1100)
    model = GPRegressor(verbose=0).set_params(**options)
    rows = Batch(x, y, np.ones(len(y)))
    noise = "gaussian" if options.get("likelihood") is None else "student-t"
    targets = regression(noise, y, np.ones(len(y)), {})
    assert not gaussian.can_fit(model, targets, rows)
    other = GPRegressor(verbose=0)
    assert gaussian.can_fit(other, regression("gaussian", y, rows.weight, {}), rows)
    # A first piece is small, as updates are slow otherwise.
    told = regression("gaussian", y, rows.weight, {})
    assert not gaussian.can_fit(other, told, rows, is_piece=True)
