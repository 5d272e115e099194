"""k-hat and the ELBO against closed forms and brute force."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from scipy import stats

from natgrad.errors import InputError
from natgrad.numpyro import diagnose
from natgrad.numpyro._diagnose import generalized_pareto, pareto_shape


@pytest.fixture(autouse=True)
def promoting():
    """NumPyro's own code promotes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("shape", [-0.2, 0.2, 0.5, 1.0])
def test_the_shape_of_a_pareto_tail_is_that_of_maximum_likelihood(shape):
    draws = np.sort(stats.genpareto.rvs(shape, size=2000, random_state=0))
    found = generalized_pareto(draws)
    brute, _, _ = stats.genpareto.fit(draws, floc=0)
    assert abs(found - brute) < 0.02
    assert abs(found - shape) < 0.1


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0])
def test_weights_with_a_known_tail_have_its_shape(shape):
    rng = np.random.default_rng(1)
    shapes = [pareto_shape(shape * rng.exponential(size=4000)) for _ in range(50)]
    # Ten observations of 0.5 come with the 190 of the tail.
    expected = (190 * shape + 10 * 0.5) / 200
    assert abs(np.mean(shapes) - expected) < 0.04


def test_weights_that_are_equal_have_no_tail_and_nan_is_the_worst():
    assert pareto_shape(np.full(100, -3.0)) == -math.inf
    assert pareto_shape(1e3 * np.random.default_rng(0).normal(size=4000)) == math.inf
    assert pareto_shape(np.float32(1e3) + np.zeros(100, "float32")) == -math.inf
    assert pareto_shape(np.array([0.0, np.nan] * 50)) == math.inf


def wide(scale):
    numpyro.sample("x", dist.Normal(0.0, scale))


def narrow(scale):
    numpyro.sample("x", dist.Normal(0.0, 1.0))


def test_a_guide_that_is_a_little_too_narrow_passes():
    """w = p/q has a tail of shape 1 − 1/s², as p = N(0, s²) and q = N(0, 1)."""
    check = diagnose(wide, narrow, {}, math.sqrt(1.5))
    assert check.khat < 0.7
    exact = -(1 / 1.5 - 1 + math.log(1.5)) / 2  # −KL(q ‖ p)
    assert abs(check.elbo - exact) < 4 * check.error
    assert 0 < check.error < 0.01


def test_a_guide_that_is_far_too_narrow_is_told():
    with pytest.warns(UserWarning, match="poor fit"):
        check = diagnose(wide, narrow, {}, 10.0)
    assert check.khat > 0.7


def test_a_subsample_has_no_weights():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 10, subsample_size=2) as rows:
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y[rows])

    with pytest.raises(InputError, match="'rows' takes 2 of 10 rows"):
        diagnose(model, narrow, {}, jnp.zeros(10))
    with pytest.raises(InputError, match="draws is 3"):
        diagnose(wide, narrow, {}, 1.0, draws=3)
