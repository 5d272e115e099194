"""A predictor that is given more rows is that of the updated model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import gp
from natgrad.data import Batch
from natgrad.gp._sparse import marginals
from natgrad.gp.likelihoods._rows import expected_log_probs
from tests.gp.likelihoods import LIKELIHOODS
from tests.variants import variants


RNG = np.random.default_rng(0)
X = RNG.uniform(size=(40, 2))
ROUGH = {"RobustMax(3)", "RobustMax(10)"}
ROUGH |= {name for name, case in LIKELIHOODS.items() if not case.is_smooth}
"""Natural steps do not solve these to the last digit."""


@pytest.fixture(autouse=True)
def relaxed():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def begun(name: str, is_whitened: bool = True) -> tuple:
    likelihood, y, *_ = LIKELIHOODS[name]
    y = np.resize(np.asarray(y), 40)
    kernel = gp.kernels.Matern52([0.5, 0.7], 1.5)
    model = gp.SparseGP(kernel, likelihood, X[:12], is_whitened=is_whitened)
    return gp.update(model, (X[:36], y[:36])), (X[36:], y[36:])


def bound(before, after, x, y):
    fit = expected_log_probs(
        after.likelihood,
        *marginals(after.posterior, after.project(jnp.asarray(x))),
        Batch(x, y),
    )
    return fit.sum() - after.posterior.kl(before.posterior).sum()


OFTEN = ("Gaussian", "Poisson", "Softmax")


@pytest.mark.parametrize("name", variants(LIKELIHOODS, OFTEN))
def test_it_is_the_updated_model(name):
    model, (x, y) = begun(name, is_whitened=name != "Poisson")
    fast = gp.predictor(model).given(x, y)
    slow = gp.predictor(gp.update(model, (x, y)))
    reached = [bound(model, each.model, x, y) for each in (fast, slow)]
    assert reached[0] >= reached[1] - 1e-9
    if name not in ROUGH:
        at = RNG.uniform(size=(20, 2))
        for one, other in zip(fast.latent(at), slow.latent(at), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-7)
        draws = [each.sample_latent(jax.random.key(0), at, 3) for each in (fast, slow)]
        np.testing.assert_allclose(*draws, rtol=0, atol=1e-3)


def test_many_are_a_batch_and_rows_in_turn_are_rows_together():
    model, (x, y) = begun("Gaussian")
    before = gp.predictor(model)
    at = jnp.asarray(RNG.uniform(size=(7, 2)))
    asked = lambda x, y: before.given(x[None], y[None]).latent_at(at)
    many = jax.jit(jax.vmap(asked))(jnp.asarray(x), jnp.asarray(y))
    for place in range(len(x)):
        one = before.given(x[[place]], y[[place]]).latent_at(at)
        for a, b in zip(one, many, strict=True):
            np.testing.assert_allclose(a, b[place], rtol=0, atol=1e-10)
    in_turn = before.given(x[:2], y[:2]).given(x[2:], y[2:])
    together = before.given(x, y)
    for one, other in zip(in_turn.latent(at), together.latent(at), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
