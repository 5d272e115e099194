"""Fits of NumPyro models: what is exact, what stops, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import SVI, Predictive, Trace_ELBO

import natgrad
from natgrad.errors import FitError, InputError
from natgrad.families import diagonal, gaussian
from natgrad.linalg import Full, Log, Sqrt
from natgrad.numpyro import AutoNatural, fit, optimizer
from natgrad.positive import Plain
from tests.variants import variants


@pytest.fixture(autouse=True)
def promoting():
    """NumPyro's own code promotes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def conjugate(y):
    """github.com/pymc-devs/pymc/issues/6271: exactly N(8, 0.2) at 10."""
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(x, 0.5), obs=y)


RNG = np.random.default_rng(0)
DESIGN = RNG.normal(size=(40, 3))
TARGET = DESIGN @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=40)
PRECISION = DESIGN.T @ DESIGN / 0.3**2 + np.eye(3)
MEAN = np.linalg.solve(PRECISION, DESIGN.T @ TARGET / 0.3**2)


def linear(x, y, size=None):
    x, y = jnp.asarray(x), jnp.asarray(y)
    w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
    with numpyro.plate("rows", len(x), subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ w, 0.3), obs=y[rows])


def run(model, guide, steps, *args, **kwargs):
    svi = SVI(model, guide, optimizer(), Trace_ELBO())
    key = jax.random.key(0)
    return svi.run(key, steps, *args, progress_bar=False, **kwargs)


FAMILIES = {
    "moments sqrt": lambda m, s: gaussian.Moments(m, Sqrt(jnp.diag(s))),
    "moments full": lambda m, s: gaussian.Moments(m, Full(jnp.diag(s**2))),
    "moments log": lambda m, s: gaussian.Moments(m, Log(jnp.diag(2 * jnp.log(s)))),
    "canonical sqrt": lambda m, s: gaussian.Canonical(
        m / s**2, Sqrt(jnp.diag(1 / s) / jnp.sqrt(2.0))
    ),
    "canonical full": lambda m, s: gaussian.Canonical(
        m / s**2, Full(jnp.diag(0.5 / s**2))
    ),
    "canonical log": lambda m, s: gaussian.Canonical(
        m / s**2, Log(jnp.diag(-2 * jnp.log(s) - jnp.log(2.0)))
    ),
}


@pytest.mark.parametrize(
    "family", variants(FAMILIES, ["moments sqrt", "canonical full"])
)
def test_one_step_solves_a_conjugate_model_in_all_coordinates(family):
    guide = AutoNatural(linear, family=FAMILIES[family])
    params = run(linear, guide, 1, DESIGN, TARGET).params
    q = params["auto_posterior"]
    np.testing.assert_allclose(q.location(), MEAN, rtol=1e-8)
    np.testing.assert_allclose(q.covariance(), np.linalg.inv(PRECISION), rtol=1e-7)


def test_one_step_of_a_diagonal_guide_has_the_precisions_of_the_posterior():
    family = lambda m, s: diagonal.Moments(m, Plain(s**2))
    params = run(linear, AutoNatural(linear, family=family), 1, DESIGN, TARGET).params
    variances = params["auto_posterior"].variances()
    np.testing.assert_allclose(variances, 1 / np.diag(PRECISION), rtol=1e-8)


@pytest.mark.nightly
def test_minibatches_average_out():
    """At γ = w/(w + t), E[KL] of a conjugate model is w²/(2w − 1) d/2 N/(B t)."""
    rng = np.random.default_rng(1)
    rows, batch, steps = 2000, 40, 200
    x = rng.normal(size=(rows, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=rows)
    precision = x.T @ x / 0.3**2 + np.eye(3)
    mean = np.linalg.solve(precision, x.T @ y / 0.3**2)
    exact = gaussian.Moments(jnp.asarray(mean), Full(jnp.linalg.inv(precision)))
    guide = AutoNatural(linear)
    params = run(linear, guide, steps, x, y, size=batch).params
    expected = 1.125 * 3 / 2 * rows / (batch * steps)
    assert params["auto_posterior"].kl(exact) < 3 * expected


def test_a_conjugate_normal_far_from_its_prior_is_right_with_nothing_set():
    result = fit(conjugate, 10.0)
    posterior = result.guide.get_posterior(result.params)
    np.testing.assert_allclose(posterior.mean, [8.0], rtol=1e-8)
    np.testing.assert_allclose(posterior.variance, [0.2], rtol=1e-8)
    assert result.has_converged
    assert len(result.losses) <= 10


def test_a_regression_with_wide_priors_has_the_right_slope():
    """github.com/pymc-devs/pymc/issues/2162: ADVI had the slope's sign wrong."""
    x = np.array([1.17, 2.97, 3.26, 4.69, 5.83, 6.0, 6.41])
    y = np.array([78.93, 58.2, 67.47, 37.47, 45.65, 32.92, 29.97])

    def drugs(x, y):
        intercept = numpyro.sample("intercept", dist.Normal(0, 100))
        slope = numpyro.sample("slope", dist.Normal(0, 100))
        scale = numpyro.sample("scale", dist.HalfCauchy(5))
        numpyro.sample("score", dist.Normal(intercept + slope * x, scale), obs=y)

    result = fit(drugs, x, y)
    assert result.has_converged
    median = result.guide.median(result.params)
    # The slope of least squares: with priors this wide, that of the posterior as well.
    slope, intercept = np.polyfit(x, y, 1)
    np.testing.assert_allclose(median["slope"], slope, atol=0.4)
    np.testing.assert_allclose(median["intercept"], intercept, atol=2.0)
    low, high = result.guide.quantiles(result.params, [0.05, 0.95])["slope"]
    assert low < slope < high < 0


def test_predictive_draws_from_the_posterior_and_from_the_model():
    result = fit(linear, DESIGN, TARGET)
    draws = Predictive(result.guide, params=result.params, num_samples=4000)
    weights = draws(jax.random.key(1), DESIGN, TARGET)["w"]
    np.testing.assert_allclose(weights.mean(0), MEAN, atol=0.01)
    np.testing.assert_allclose(np.cov(weights.T), np.linalg.inv(PRECISION), atol=3e-4)
    shape = (5, 3)
    posterior = result.guide.sample_posterior(
        jax.random.key(2), result.params, sample_shape=(5,)
    )
    assert posterior["w"].shape == shape


def test_minibatches_of_a_plate_lead_to_the_posterior_of_all_rows():
    guide = AutoNatural(linear)
    params = run(linear, guide, 400, DESIGN, TARGET, size=10).params
    q, exact = params["auto_posterior"], np.linalg.inv(PRECISION)
    away = (q.location() - MEAN) / np.sqrt(np.diag(exact))
    assert np.abs(away).max() < 0.7  # a minibatch alone is about 5 away
    np.testing.assert_allclose(q.covariance(), exact, rtol=0.3, atol=3e-4)


def test_a_parameter_of_the_model_moves_by_adam():
    def learned(x, y):
        noise = numpyro.param("noise", 1.0, constraint=dist.constraints.positive)
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    result = fit(learned, DESIGN, TARGET, learning_rate=0.05)
    assert 0.2 < result.params["noise"] < 0.4  # 0.3 made the data


def test_other_optimizers_train_the_guide_as_well():
    import optax

    guide = AutoNatural(conjugate)
    svi = SVI(conjugate, guide, optax.adam(0.1), Trace_ELBO())
    params = svi.run(jax.random.key(0), 500, 10.0, progress_bar=False).params
    np.testing.assert_allclose(guide.median(params)["x"], 8.0, atol=0.5)


def test_a_loss_that_is_not_finite_is_an_error():
    def broken(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("bad", jnp.where(x > -100, jnp.nan * x, x))

    with pytest.raises((FitError, RuntimeError), match="finite|initial"):
        fit(broken, 1.0, steps=3)


def test_what_cannot_be_used_is_named():
    with pytest.raises(InputError, match="family is 'round'"):
        AutoNatural(conjugate, family="round")
    with pytest.raises(InputError, match="init_scale is 0"):
        AutoNatural(conjugate, init_scale=0.0)
    with pytest.raises(InputError, match="should return a distribution"):
        run(conjugate, AutoNatural(conjugate, family=lambda m, s: m), 1, 10.0)
    with pytest.raises(InputError, match="draws is 0"):
        optimizer(draws=0)
    with pytest.raises(InputError, match="steps is 0"):
        fit(conjugate, 10.0, steps=0)
    plain = numpyro.infer.autoguide.AutoNormal(conjugate)
    with pytest.raises(InputError, match="no distribution of natgrad"):
        run(conjugate, plain, 1, 10.0)
    with pytest.raises(InputError, match="need the loss"):
        natgrad.numpyro.optimizer().update({}, (0, ({}, None)))
