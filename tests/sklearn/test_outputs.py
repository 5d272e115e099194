"""A regressor of several outputs: what it returns, and what it does not look at."""

import pickle
import warnings

import numpy as np
import onnxruntime
import pytest
from matplotlib import pyplot

from natgrad import metrics, plot, report
from natgrad.errors import InputError
from natgrad.gp.kernels import RBF, Separate
from natgrad.gp.likelihoods import StudentT
from natgrad.sklearn import GPRegressor, load
from natgrad.sklearn._outputs import initial_mixing


LEVELS = [0.1, 0.5, 0.9]


def table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Two outputs that mirror each other, the second far from 0 and with gaps."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, (rows, 1)), 0)
    wave = np.sin(x[:, 0])
    y = np.stack([wave, 100 - 20 * wave], 1) + rng.normal(size=(rows, 2)) * [0.1, 2]
    y[rows // 3 : rows // 2, 1] = np.nan
    return x, y


@pytest.fixture(scope="module")
def fitted():
    return GPRegressor(verbose=0).fit(*table())


def test_every_prediction_has_an_axis_of_outputs(fitted):
    x, y = table()
    mean, std = fitted.predict(x, return_std=True)
    quantiles = fitted.predict(x, quantiles=LEVELS)
    assert mean.shape == std.shape == (60, 2)
    assert quantiles.shape == (60, 2, 3)
    np.testing.assert_allclose(quantiles[..., 1], mean, rtol=1e-9)
    for place, level in enumerate(LEVELS):
        found = fitted.cdf(x, quantiles[..., place])
        np.testing.assert_allclose(found, level, atol=1e-9)
    density = fitted.log_density(x, y)
    square = ((y - mean) / std) ** 2
    np.testing.assert_allclose(density, -np.log(std * np.sqrt(2 * np.pi)) - square / 2)
    draws = fitted.sample_y(x[:5], 500)
    assert draws.shape == (5, 2, 500)
    assert (np.abs(draws.mean(-1) - mean[:5]) < std[:5] / 4).all()


def test_one_output_predicts_as_a_column_of_all(fitted):
    x, y = table()
    second = fitted.output(1)
    density, quantiles = fitted.log_density(x, y), fitted.predict(x, quantiles=LEVELS)
    for found, all_of_them in [
        (second.predict(x), fitted.predict(x)),
        (second.predict(x, return_std=True)[1], fitted.predict(x, return_std=True)[1]),
        (second.predict(x, quantiles=LEVELS), quantiles),
        (second.log_density(x, y[:, 1]), density),
        (second.cdf(x, y[:, 1]), fitted.cdf(x, y)),
        (second.sample_y(x, 3), fitted.sample_y(x, 3)),
    ]:
        np.testing.assert_array_equal(found, all_of_them[:, 1])
    assert repr(pickle.loads(pickle.dumps(second))) == repr(second)
    for place in (-1, 2):
        with pytest.raises(InputError, match="there are outputs 0 to 1"):
            fitted.output(place)


def test_metrics_pictures_and_reports_of_one_output(fitted, tmp_path):
    x, y = table()
    known = ~np.isnan(y[:, 1])
    second, rows, target = fitted.output(1), x[known], y[known, 1]
    found = metrics.evaluate(second, rows, target)
    density = fitted.log_density(x, y)[known, 1].mean()
    assert found["log_density"] == pytest.approx(density)
    assert (
        found["r2"] == pytest.approx(second.score(rows, target)) and found["r2"] > 0.9
    )
    for draw in (plot.fit, plot.predicted, plot.calibration, plot.residuals):
        axes = draw(second, rows, target)
        assert axes.has_data()
        pyplot.close(axes.figure)
    page = report.write(second, rows, target, tmp_path / "report.html").read_text()
    assert page.count("<figure>") == 5
    with pytest.raises(InputError, match=r"pass estimator\.output\(0\)"):
        plot.predicted(fitted, x, y)


def test_a_gap_is_filled_by_the_other_output(fitted):
    x, y = table()
    gap = np.isnan(y[:, 1])
    truth = 100 - 20 * np.sin(x[gap, 0])
    assert np.abs(fitted.predict(x)[gap, 1] - truth).max() < 6
    assert fitted.score(x[~gap], y[~gap]) > 0.9


def test_units_of_an_output_do_not_matter(fitted):
    x, y = table()
    moved = GPRegressor(verbose=0).fit(x, y * [1000, 1] + [5, 0])
    expected = fitted.predict(x) * [1000, 1] + [5, 0]
    error = np.abs(moved.predict(x) - expected) / expected.std(0)
    assert error.max() < 0.01
    share = (~np.isnan(y)).mean(0)
    assert moved.elbo_ == pytest.approx(
        fitted.elbo_ - share[0] * np.log(1000), abs=0.01
    )


def test_files_pickles_exports_and_the_summary_have_all_outputs(fitted, tmp_path):
    x, y = table()
    fitted.save(tmp_path / "model.natgrad")
    again = load(tmp_path / "model.natgrad")
    assert (again.log_density(x, y) == fitted.log_density(x, y))[~np.isnan(y)].all()
    copied = pickle.loads(pickle.dumps(fitted))
    assert (copied.predict(x) == fitted.predict(x)).all()
    fitted.to_onnx(tmp_path / "served.onnx", LEVELS)
    session = onnxruntime.InferenceSession(str(tmp_path / "served.onnx"))
    mean, quantiles = session.run(["mean", "quantiles"], {"x": x})
    np.testing.assert_allclose(mean, fitted.predict(x), rtol=1e-9)
    expected = fitted.predict(x, quantiles=LEVELS)
    np.testing.assert_allclose(quantiles, expected, rtol=1e-7)
    assert "noise (deviation) of output 1" in str(fitted)
    assert "latent functions                 4" in str(fitted)


@pytest.mark.nightly
def test_more_rows_of_several_outputs_update_the_fit(fitted):
    x, y = table()
    some = pickle.loads(pickle.dumps(fitted))
    some.partial_fit(x[:3], np.where(np.isnan(y[:3]), 0.0, y[:3]))
    assert some.n_rows_seen_ == 63
    assert np.isfinite(some.predict(x)).all()


@pytest.mark.nightly
def test_outputs_may_have_likelihoods_and_kernels_of_their_own(tmp_path):
    x, y = table()
    counts = np.random.default_rng(1).poisson(np.exp(np.sin(x[:, 0])))
    both = np.column_stack([y[:, 0], counts])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps
        model = GPRegressor(["student-t", "poisson"], max_iter=5, verbose=0)
        model.fit(x, both)
        kernel = Separate([RBF(1.0)])
        noises = [StudentT(2.0), "gaussian"]
        one = GPRegressor(noises, kernel=kernel, max_iter=5, verbose=0).fit(x, y)
    assert model.y_scale_[1] == 1 and model.model_.likelihood.offset is not None
    assert (model.predict(x)[:, 1] > 0).all()
    assert one.model_.likelihood.latents == 1
    for place, each in enumerate((model, one)):
        each.save(tmp_path / f"{place}.natgrad")
        again = load(tmp_path / f"{place}.natgrad")
        assert (again.predict(x) == each.predict(x)).all()
    assert load(tmp_path / "0.natgrad").likelihood == ["student-t", "poisson"]


def test_the_start_is_the_principal_components_of_what_was_seen():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 4)) + 3
    weight = np.ones(500)
    mixing = initial_mixing(y, weight, 4)
    np.testing.assert_allclose(mixing[:, :2] @ mixing[:, :2].T, np.corrcoef(y.T))
    y[rng.random(y.shape) < 0.1] = np.nan
    assert np.abs(initial_mixing(y, weight, 2) - mixing[:, :2]).max() < 0.1


def test_outputs_that_cannot_be_used_are_refused(fitted):
    x, y = table()
    small = GPRegressor(max_iter=2, verbose=0)
    for likelihood, targets, message in (
        ("auto", np.where([True, False], y, np.nan), "output 1 has no value but NaN"),
        ("heteroskedastic", y, "HeteroskedasticGaussian, which has several"),
        (["gaussian"], y, "likelihood has 1 items and y has 2"),
        ("poisson", y, "Poisson needs"),
        ("auto", np.where(np.isnan(y), np.inf, y), "infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            small.set_params(likelihood=likelihood).fit(x, targets)
    with pytest.raises(InputError, match="y has shape"):
        fitted.log_density(x, y[:, 0])
