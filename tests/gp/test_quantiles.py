"""Quantiles by SciPy: of the distributions that the likelihoods have in JAX."""

import jax
import numpy as np
import pytest
from scipy import stats

from natgrad import gp
from natgrad.gp import kernels, likelihoods
from natgrad.gp._quantiles import NODES, _fill_from_tables, cdf, quantiles, rows_of
from natgrad.gp._sparse import SparseGP
from tests.gp.likelihoods import LIKELIHOODS
from tests.variants import variants


class More(likelihoods.Poisson):
    """A count whose distribution is not that of the class it begins with."""

    def log_prob(self, f, y):
        return super().log_prob(f + 1, y)

    def cdf(self, f, y):
        return super().cdf(f + 1, y)


def test_a_class_with_a_distribution_function_of_its_own_has_its_quantiles():
    mean, var, levels = np.zeros(3), np.full(3, 0.2), np.array([0.1, 0.5, 0.99])
    ours = rows_of(More(), mean, var)
    theirs = rows_of(likelihoods.Poisson(), mean + 1, var)
    np.testing.assert_array_equal(quantiles(ours, levels), quantiles(theirs, levels))
    np.testing.assert_allclose(cdf(ours, 2 + mean), cdf(theirs, 2 + mean), rtol=1e-9)


KNOWN = {
    "StudentT": likelihoods.StudentT(0.3),
    "StudentT(1)": likelihoods.StudentT(2.0, dof=1.0),
    "StudentT(4.5)": likelihoods.StudentT(0.1, dof=4.5),
    "HeteroskedasticGaussian": likelihoods.HeteroskedasticGaussian(),
    "Gamma": likelihoods.Gamma(2.5),
    "Gamma(0.2)": likelihoods.Gamma(0.2),
    "Weibull": likelihoods.Weibull(1.6),
    "Beta": likelihoods.Beta(8.0),
    "Beta(probit)": likelihoods.Beta(8.0, "probit"),
    "Beta(0.5)": likelihoods.Beta(0.5),
    "Poisson": likelihoods.Poisson(),
    "NegativeBinomial": likelihoods.NegativeBinomial(0.4),
    "NegativeBinomial(1e-6)": likelihoods.NegativeBinomial(1e-6),
    "ZeroInflatedPoisson": likelihoods.ZeroInflatedPoisson(0.3),
    "ZeroInflatedNegativeBinomial": likelihoods.ZeroInflatedNegativeBinomial(0.4, 0.07),
    "Binomial": likelihoods.Binomial(),
    "Binomial(9)": LIKELIHOODS["Binomial(9)"].likelihood,
    "Binomial(9, logit)": LIKELIHOODS["Binomial(9, logit)"].likelihood,
}


def test_they_are_fast_where_scipy_is():
    for known in KNOWN.values():
        latent = np.zeros((1, known.latents) if known.latents else 1)
        assert rows_of(known, latent, latent).is_scipy
    assert not rows_of(More(), np.zeros(1), np.ones(1)).is_scipy


def test_one_level_of_many_rows_alike():
    many = rows_of(likelihoods.Gamma(2.5), np.zeros(2000), np.ones(2000))
    found = quantiles(many, np.array([0.5]))
    np.testing.assert_allclose(cdf(many, found[:, 0]), 0.5, rtol=1e-7)


OFTEN = ("Beta", "NegativeBinomial", "Binomial(9)")
TABLED = [
    name
    for name, known in KNOWN.items()
    if known.support.value != "real" and not name.startswith("Binomial(")
]
LEVELS = np.asarray([1e-4, 0.05, 0.5, 0.9, 0.999])


def rows(likelihood, num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of f, of all sizes, zero among them."""
    random = np.random.default_rng(seed)
    shape = (num, likelihood.latents) if likelihood.latents else (num,)
    var = 10.0 ** random.uniform(-6, 0.5, shape)
    var[0] = 0
    return random.normal(scale=1.5, size=shape), var


@pytest.mark.parametrize("name", variants(KNOWN, OFTEN))
def test_distribution_functions_are_those_of_the_likelihood(name):
    likelihood = KNOWN[name]
    mean, var = rows(likelihood, 60)
    y = np.random.default_rng(1).normal(scale=3, size=60)
    if likelihood.support.is_whole:
        y = np.floor(3 * y)
    ours = cdf(rows_of(likelihood, mean, var), y)
    theirs = jax.vmap(likelihood.predictive_cdf)(mean, var, y)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", variants(KNOWN, OFTEN))
def test_the_quantile_of_a_level_is_the_first_target_that_reaches_it(name):
    targets = rows_of(KNOWN[name], *rows(KNOWN[name], 200))
    found = quantiles(targets, LEVELS)
    assert (np.diff(found, axis=1) >= -1e-15 * np.abs(found[:, 1:])).all()
    for y, level in zip(found.T, LEVELS, strict=True):
        # To the last places of a target, which near 0 and 1 are far apart in logits.
        places = 1e-9 * np.abs(y) + 1e-300
        is_whole = targets.likelihood.support.is_whole
        below, above = (y - 1, y) if is_whole else (y - places, y + places)
        assert (cdf(targets, above) >= level * (1 - 1e-8)).all()
        assert (cdf(targets, below) <= level * (1 + 1e-8)).all()


@pytest.mark.parametrize("name", variants(TABLED, TABLED[:2]))
def test_rows_from_tables_are_as_those_that_are_searched_for(name):
    likelihood, random = KNOWN[name], np.random.default_rng(0)
    num = 3 * NODES[0] * NODES[1]
    mean = random.uniform(0, 2, num)
    var = 4.0 ** random.uniform(-4, -2, num)
    t = np.full((num, len(LEVELS)), np.nan)
    _fill_from_tables(rows_of(likelihood, mean, var), LEVELS, t)
    is_filled = np.isfinite(t)
    assert (is_filled.all(0) | ~is_filled.any(0)).all()
    # Not all, as near the ends of a support its logarithm or logit is too steep.
    assert is_filled[0, 2] or name == "Beta(probit)"
    few = np.arange(0, num, 9)
    together = quantiles(rows_of(likelihood, mean, var), LEVELS)[few]
    alone = quantiles(rows_of(likelihood, mean[few], var[few]), LEVELS)
    if likelihood.support.is_whole:
        np.testing.assert_array_equal(together, alone)
    else:
        np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_a_row_of_known_f_has_the_quantiles_of_textbooks():
    mean, var = np.asarray([0.7]), np.zeros(1)
    textbook = {
        "StudentT": stats.t(3, 0.7, 0.3),
        "StudentT(1)": stats.cauchy(0.7, 2),
        "Gamma": stats.gamma(2.5, scale=np.exp(0.7) / 2.5),
        "Beta": stats.beta(8 / (1 + np.exp(-0.7)), 8 / (1 + np.exp(0.7))),
        "Weibull": stats.weibull_min(1.6, scale=np.exp(0.7)),
        "Binomial(9)": stats.binom(9, stats.norm.cdf(0.7)),
        "Poisson": stats.poisson(np.exp(0.7)),
        "NegativeBinomial": stats.nbinom(2.5, 1 / (1 + 0.4 * np.exp(0.7))),
    }
    for name, distribution in textbook.items():
        found = quantiles(rows_of(KNOWN[name], mean, var), LEVELS)[0]
        np.testing.assert_allclose(found, distribution.ppf(LEVELS), rtol=1e-8)


@pytest.mark.parametrize("name", variants(KNOWN, OFTEN))
def test_a_predictor_uses_them(name):
    x = np.linspace(-2, 2, 4)[:, None]
    predictor = gp.predictor(SparseGP(kernels.RBF(), KNOWN[name], jax.numpy.asarray(x)))
    found = predictor.quantiles(x, LEVELS)
    np.testing.assert_array_equal(
        found, quantiles(rows_of(KNOWN[name], *predictor.latent(x)), LEVELS)
    )
    assert (predictor.cdf(x, found[:, 2]) >= 0.5 - 1e-6).all()


def test_quantiles_rise_with_their_level_if_the_noise_is_far_below_the_spread_of_f():
    mean, var = np.asarray([0.0, 0.0]), np.asarray([1.0, 4.0])
    targets = rows_of(likelihoods.Gamma(1e12), mean, var)
    found = quantiles(targets, np.asarray([0.05, 0.5, 0.95]))
    expected = stats.norm.ppf([0.05, 0.5, 0.95]) * np.sqrt(var)[:, None]
    np.testing.assert_allclose(np.log(found), expected, atol=0.1)
