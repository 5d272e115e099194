"""More rows are more sites, of one hypothetical row or of many in a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import gp
from natgrad.data import Batch
from natgrad.gp._sites import condition, project, sites_at, to_sites, together
from natgrad.gp._sparse import marginals, with_posterior
from natgrad.gp.likelihoods._rows import expected_log_probs
from tests.gp.likelihoods import LIKELIHOODS
from tests.variants import variants


RNG = np.random.default_rng(0)
X = RNG.uniform(size=(40, 2))
ROUGH = {"RobustMax(3)", "RobustMax(10)"}
ROUGH |= {name for name, case in LIKELIHOODS.items() if not case.is_smooth}
"""Natural steps do not solve these to the last digit."""
SMOOTH = {*LIKELIHOODS} - ROUGH


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


OFTEN = ("Gaussian", "Poisson", "Softmax")


@pytest.mark.parametrize("name", variants(sorted(SMOOTH), OFTEN))
def test_an_update_adds_the_sites_of_its_rows(name):
    before, (x, y) = begun(name, is_whitened=name != "Poisson")
    after = gp.update(before, (x, y))
    rows = after.project(jnp.asarray(x))
    found = project(rows.over_q, sites_at(after, rows, Batch(x, y)))
    both = together(to_sites(before), found)
    again = with_posterior(after, condition(after.posterior, both, rows.inverse))
    at = jnp.asarray(RNG.uniform(size=(20, 2)))
    for one, other in zip(after.marginals(at), again.marginals(at), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-7)


def bound(before, after, x, y):
    fit = expected_log_probs(
        after.likelihood,
        *marginals(after.posterior, after.project(jnp.asarray(x))),
        Batch(x, y),
    )
    return fit.sum() - after.posterior.kl(before.posterior).sum()


@pytest.mark.parametrize("name", variants(LIKELIHOODS, ["StudentT"]))
def test_steps_in_the_directions_that_few_rows_see_end_where_those_in_all_do(name):
    before, (x, y) = begun(name)
    few = gp.update(before, (x, y))
    # Rows that do not count, so that there are more of them than inducing inputs.
    weight = np.append(np.ones(4), np.zeros(12))
    fill = lambda column: np.concatenate([column, *[column[:1]] * 12])
    many = gp.update(before, (fill(x), fill(y), weight))
    reached = [bound(before, each, x, y) for each in (few, many)]
    np.testing.assert_allclose(*reached, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "Poisson"])
def test_many_are_a_batch_and_rows_in_turn_are_rows_together(name):
    before, (x, y) = begun(name)
    at = jnp.asarray(RNG.uniform(size=(7, 2)))
    latent = lambda model: gp.predictor(model).latent_at(at)
    asked = lambda x, y: latent(gp.update(before, (x[None], y[None])))
    many = jax.jit(jax.vmap(asked))(jnp.asarray(x), jnp.asarray(y))
    for place in range(len(x)):
        one = latent(gp.update(before, (x[[place]], y[[place]])))
        for a, b in zip(one, many, strict=True):
            np.testing.assert_allclose(a, b[place], rtol=0, atol=1e-10)
    if name != "Gaussian":
        return
    left = lambda x: asked(x, jnp.asarray(y[0]))[1].sum()
    slope, step = jax.jit(jax.grad(left))(jnp.asarray(x[0])), 1e-5 * np.eye(2)
    rise = [left(x[0] + h) - left(x[0] - h) for h in map(jnp.asarray, step)]
    np.testing.assert_allclose(slope, np.array(rise) / 2e-5, rtol=1e-5)
    in_turn = gp.update(gp.update(before, (x[:2], y[:2])), (x[2:], y[2:]))
    together = gp.update(before, (x, y))
    for one, other in zip(latent(in_turn), latent(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
