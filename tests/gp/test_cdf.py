"""The distribution function of the targets, of all kinds of likelihoods at once."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import gp
from natgrad.gp import SparseGP, kernels
from natgrad.gp.likelihoods import (
    FromDistribution,
    Gaussian,
    HeteroskedasticGaussian,
    RobustMax,
    Softmax,
)
from tests.gp.likelihoods import LIKELIHOODS, OURS, cases, num_classes, optional, rows


def has_cdf(name: str) -> bool:
    mean, var, y = (x[0] for x in rows(name))
    cdf = LIKELIHOODS[name].likelihood.predictive_cdf
    return jax.eval_shape(lambda: optional(cdf, mean, var, y)) is not None


def is_discrete(name: str) -> bool:
    return LIKELIHOODS[name].likelihood.support.is_whole


DISCRETE = [name for name in OURS if has_cdf(name) and is_discrete(name)]
CONTINUOUS = [name for name in OURS if has_cdf(name) and not is_discrete(name)]
LEVELS = np.asarray([1e-3, 0.3, 0.97])
LABELS = np.arange(-2, 12)


@functools.cache
def report(name: str) -> SimpleNamespace:
    """All that the laws speak of, at three rows."""
    likelihood = LIKELIHOODS[name].likelihood
    ends = jnp.asarray([-1e3, -1.0, 1.0, 1e3])

    @jax.jit
    @jax.vmap
    def at_row(mean, var):
        quantile = lambda level: likelihood.quantile(mean, var, level)
        cdf = jax.vmap(lambda y: likelihood.predictive_cdf(mean, var, y))
        log_prob = lambda y: likelihood.log_predictive(mean, var, y)
        quantiles = jax.vmap(quantile)(jnp.asarray(LEVELS))
        return dict(
            quantiles=quantiles,
            levels=cdf(quantiles),
            before=cdf(quantiles - 1),
            at_labels=cdf(jnp.asarray(LABELS)),
            between=cdf(jnp.asarray(LABELS + 0.5)),
            probabilities=jnp.exp(jax.vmap(log_prob)(jnp.asarray(LABELS))),
            at_ends=cdf(ends),
        )

    mean, var, _ = rows(name)
    return SimpleNamespace(**jax.tree.map(np.asarray, at_row(mean, var)))


@pytest.mark.parametrize("name", cases(CONTINUOUS))
def test_a_quantile_is_not_exceeded_with_its_probability(name):
    levels = np.broadcast_to(LEVELS, (3, len(LEVELS)))
    np.testing.assert_allclose(report(name).levels, levels, rtol=1e-9)


@pytest.mark.parametrize("name", cases(DISCRETE))
def test_the_distribution_function_sums_the_probabilities(name):
    at = report(name)
    classes = num_classes(LIKELIHOODS[name].likelihood) or np.inf
    is_target = (LABELS >= 0) & (classes > LABELS)
    sums = np.cumsum(np.where(is_target, at.probabilities, 0), 1)
    np.testing.assert_allclose(at.at_labels, sums, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(at.between, at.at_labels)


@pytest.mark.parametrize("name", cases(DISCRETE))
def test_a_quantile_is_the_first_target_at_its_level(name):
    at = report(name)
    assert (at.levels >= LEVELS).all()
    assert (at.before < LEVELS).all()


@pytest.mark.parametrize("name", cases(CONTINUOUS + DISCRETE))
def test_all_mass_is_between_the_ends_of_the_line(name):
    at = np.asarray(report(name).at_ends)
    tails = LIKELIHOODS[name].tail
    assert (np.diff(at, axis=1) >= 0).all() and np.isfinite(at).all()
    assert (at[:, 0] <= tails).all() and (at[:, -1] >= 1 - tails).all()


def test_a_predictor_gives_it_for_every_row():
    x = np.linspace(-1, 1, 5)[:, None]
    for likelihood in (Gaussian(0.3), HeteroskedasticGaussian()):
        predictor = gp.predictor(SparseGP(kernels.RBF(), likelihood, jnp.asarray(x)))
        middle = predictor.quantiles(x, [0.5])[:, 0]
        np.testing.assert_allclose(predictor.cdf(x, middle), 0.5, rtol=1e-9)


@pytest.mark.parametrize("likelihood", [Softmax(3), RobustMax(3)], ids=["soft", "max"])
def test_classes_without_order_have_none(likelihood):
    with pytest.raises(NotImplementedError, match="has no .*; it would need"):
        likelihood.predictive_cdf(jnp.zeros(3), jnp.ones(3), jnp.asarray(1))


def test_one_of_another_library_has_it_where_that_has():
    class Exponential:
        def __init__(self, rate):
            self.rate = rate

        def cdf(self, y):
            return -jnp.expm1(-self.rate * y)

    likelihood = FromDistribution(lambda f: Exponential(jnp.exp(f)), None, "positive")
    mean, var = jnp.asarray(0.2), jnp.asarray(0.1)
    middle = likelihood.quantile(mean, var, jnp.asarray(0.5))
    half = likelihood.predictive_cdf(mean, var, middle)
    np.testing.assert_allclose(half, 0.5, rtol=1e-9)
