"""Sites with a gamma, a beta or a Dirichlet of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import SVI, Predictive, Trace_ELBO
from scipy import stats

from natgrad.errors import InputError
from natgrad.numpyro import AutoNatural, diagnose, fit, optimizer


@pytest.fixture(autouse=True)
def promoting():
    """NumPyro's own code promotes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


COINS = jnp.array([1, 1, 0, 1, 1, 1, 1, 0, 1, 1])
COUNTS = jnp.array([[31, 2, 0], [28, 1, 1], [35, 4, 0], [30, 2, 0]])
PARTS = jnp.array([3, 0, 12, 400])
FAMILIES = {"p": "beta", "rate": "gamma", "parts": "dirichlet"}


def conjugate(coins, counts, parts):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    numpyro.sample("coins", dist.Bernoulli(p).expand([10]).to_event(1), obs=coins)
    with numpyro.plate("kinds", 3):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("days", 4):
            numpyro.sample("counts", dist.Poisson(rate), obs=counts)
    prior = dist.Dirichlet(jnp.array([0.5, 1.0, 2.0, 1.0]))
    shares = numpyro.sample("parts", prior)
    numpyro.deterministic("odds", p / (1 - p))
    numpyro.sample("seen", dist.Multinomial(415, shares), obs=parts)


@pytest.fixture(scope="module")
def solved():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        guide = AutoNatural(conjugate, families=FAMILIES)
        svi = SVI(conjugate, guide, optimizer(), Trace_ELBO())
        data = (COINS, COUNTS, PARTS)
        run = svi.run(jax.random.key(0), 2, *data, progress_bar=False)
        return guide, run, data


def test_one_step_solves_conjugate_sites_of_all_three_families(solved):
    guide, params = solved[0], solved[1].params
    a, b = params["auto_p_posterior"].a_b()
    np.testing.assert_allclose([a, b], [2 + 8, 3 + 2], rtol=1e-8)
    shape, rate = params["auto_rate_posterior"].shape_rate()
    np.testing.assert_allclose(shape, 2 + COUNTS.sum(0), rtol=1e-8)
    np.testing.assert_allclose(rate, 1 + 4, rtol=1e-8)
    alpha = params["auto_parts_posterior"].concentrations()
    np.testing.assert_allclose(alpha, PARTS + jnp.array([0.5, 1, 2, 1]), rtol=1e-8)
    assert "auto_posterior" not in params
    found = guide.get_posterior(params, "rate")
    np.testing.assert_allclose(found.mean, shape / rate)
    assert found.batch_shape == ()


def test_quantiles_are_those_of_the_families(solved):
    guide, params = solved[0], solved[1].params
    levels = [0.05, 0.5, 0.95]
    found = guide.quantiles(params, levels)
    np.testing.assert_allclose(found["p"], stats.beta(10, 5).ppf(levels), rtol=1e-8)
    shapes = 2 + np.asarray(COUNTS.sum(0))
    expected = stats.gamma(shapes, scale=1 / 5).ppf(np.array(levels)[:, None])
    np.testing.assert_allclose(found["rate"], expected, rtol=1e-8)
    median = guide.median(params)
    np.testing.assert_allclose(median["odds"], median["p"] / (1 - median["p"]))
    np.testing.assert_allclose(median["parts"].sum(), 1, rtol=1e-9)


def test_predictive_and_sample_posterior_draw_from_the_families(solved):
    guide, params, data = solved[0], solved[1].params, solved[2]
    draws = Predictive(guide, params=params, num_samples=2000)(jax.random.key(1), *data)
    exact = {"p": stats.beta(10, 5), "rate": stats.gamma(8, scale=1 / 5)}
    places = {"p": draws["p"], "rate": draws["rate"][:, 1] * 8 / 11}
    for name, law in exact.items():
        error = 5 * law.std() / np.sqrt(2000)
        np.testing.assert_allclose(places[name].mean(), law.mean(), atol=error)
    found = guide.sample_posterior(jax.random.key(2), params, sample_shape=(2, 3))
    # Two chains of three draws, as ArviZ expects them, and no other names.
    shapes = {name: value.shape for name, value in found.items()}
    expected = {"p": (2, 3), "rate": (2, 3, 3), "parts": (2, 3, 4), "odds": (2, 3)}
    assert shapes == expected


def test_the_loss_after_one_step_is_that_of_the_exact_posterior(solved):
    """All weights p(z, data)/q(z) are then the same: the evidence."""
    guide, run, data = solved
    check = diagnose(conjugate, guide, run.params, *data, draws=100)
    assert check.error < 1e-9
    np.testing.assert_allclose(run.losses[1], -check.elbo, rtol=1e-8)
    assert check.khat < 0.5


Y = 5 + 0.4 * np.random.default_rng(0).normal(size=20)


def normal(y, size=None):
    """A mean and a precision, each conjugate if the other is known."""
    y = jnp.asarray(y)
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 0.5))
    with numpyro.plate("rows", 20, subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(mean, tau**-0.5), obs=y[rows])


def by_turns():
    """The product of a Gaussian and a gamma nearest the posterior, in closed form."""
    mean, variance, expected = 0.0, 1.0, 1.0
    for _ in range(200):
        rate = 0.5 + ((Y - mean) ** 2 + variance).sum() / 2
        expected = (2 + 10) / rate
        variance = 1 / (20 * expected + 0.01)
        mean = variance * expected * Y.sum()
    return mean, variance, 12.0, rate


@pytest.mark.nightly
def test_a_gamma_beside_a_gaussian_is_the_best_of_all_products():
    result = fit(normal, Y, families={"tau": "gamma"}, tolerance=0.002)
    assert result.has_converged
    mean, variance, shape, rate = by_turns()
    rest = result.guide.get_posterior(result.params)
    tau = result.params["auto_tau_posterior"].shape_rate()
    # 0.002 nats are 0.06 standard deviations, or 9 % of a variance.
    assert abs(rest.mean[0] - mean) < 0.15 * np.sqrt(variance)
    np.testing.assert_allclose(rest.variance, [variance], rtol=0.15)
    np.testing.assert_allclose(tau[0] / tau[1], shape / rate, rtol=0.05)
    np.testing.assert_allclose(tau[0], shape, rtol=0.15)


@pytest.mark.nightly
def test_minibatches_lead_to_the_same_product():
    guide = AutoNatural(normal, families={"tau": "gamma"})
    svi = SVI(normal, guide, optimizer(), Trace_ELBO())
    run = svi.run(jax.random.key(0), 300, Y, size=5, progress_bar=False)
    mean, variance, shape, rate = by_turns()
    rest = guide.get_posterior(run.params)
    tau = guide.get_posterior(run.params, "tau")
    # A minibatch of 5 rows alone is off by 1.7 standard deviations.
    assert abs(rest.mean[0] - mean) < 0.7 * np.sqrt(variance)
    np.testing.assert_allclose(tau.mean, shape / rate, rtol=0.3)


def test_a_family_that_does_not_fit_its_site_is_named():
    with pytest.raises(InputError, match=r"families\['tau'\] is 'cauchy'"):
        AutoNatural(normal, families={"tau": "cauchy"})
    cases = {
        "'nowhere', which is not a latent site": {"nowhere": "gamma"},
        "gamma is for positive numbers": {"mean": "gamma"},
        "beta is for numbers from 0 to 1": {"tau": "beta"},
        "dirichlet is for vectors": {"tau": "dirichlet"},
    }
    for message, families in cases.items():
        guide = AutoNatural(normal, families=families)
        with pytest.raises(InputError, match=message):
            numpyro.handlers.seed(guide, jax.random.key(0))(Y)


def test_a_block_that_is_not_there_is_named(solved):
    guide, params = solved[0], solved[1].params
    with pytest.raises(InputError, match="one of p, rate, parts"):
        guide.get_posterior(params)
    with pytest.raises(InputError, match="site is mean"):
        guide.get_posterior(params, "mean")
