"""A Gaussian for each element of a plate."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import SVI, Predictive, Trace_ELBO

from natgrad.families import gaussian
from natgrad.linalg import Sqrt
from natgrad.numpyro import AutoNatural, _estimate, fit, optimizer


@pytest.fixture(autouse=True)
def promoting():
    """NumPyro's own code promotes."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


RNG = np.random.default_rng(0)
SPREAD, NOISE = 0.7, 0.5


def data(groups):
    x = RNG.normal(size=(groups, 5, 2))
    z = np.array([1.0, -2.0]) + SPREAD * RNG.normal(size=(groups, 2))
    y = np.einsum("gri,gi->gr", x, z) + NOISE * RNG.normal(size=(groups, 5))
    return jnp.asarray(x), jnp.asarray(y)


def lines(x, y, center=None):
    """A line in each group; the mean of their coefficients is known, or a site."""
    if center is None:
        prior = dist.Normal(0.0, 10.0).expand([2]).to_event(1)
        center = numpyro.sample("center", prior)
    with numpyro.plate("groups", len(x)):
        a = numpyro.sample("a", dist.Normal(center[0], SPREAD))
        b = numpyro.sample("b", dist.Normal(center[1], SPREAD))
        mean = x[..., 0] * a[:, None] + x[..., 1] * b[:, None]
        numpyro.sample("y", dist.Normal(mean, NOISE).to_event(1), obs=y)


def exact(x, y):
    """The moments of the posterior of each group, and of `center`."""
    precision = np.einsum("gri,grj->gij", x, x) / NOISE**2 + np.eye(2) / SPREAD**2
    given = np.linalg.inv(precision)
    linear = np.einsum("gri,gr->gi", x, y) / NOISE**2
    shared = (len(x) / SPREAD**2 + 0.01) * np.eye(2) - given.sum(0) / SPREAD**4
    cov = np.linalg.inv(shared)
    center = cov @ np.einsum("gij,gj->i", given, linear) / SPREAD**2
    mean = np.einsum("gij,gj->gi", given, linear + center / SPREAD**2)
    more = np.einsum("gij,jk,glk->gil", given, cov, given) / SPREAD**4
    return mean, given + more, center, cov


@pytest.mark.nightly
def test_two_thousand_groups_have_the_moments_of_the_exact_posterior():
    x, y = data(2000)
    result = fit(lines, x, y, family="plates")
    assert result.has_converged
    mean, cov, center, _ = exact(x, y)
    groups = result.guide.get_posterior(result.params, "a")
    deviations = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    assert np.abs((groups.mean - mean) / deviations).max() < 0.01
    np.testing.assert_allclose(groups.q.covariance(), cov, rtol=0.01, atol=1e-5)
    median = result.guide.median(result.params)
    np.testing.assert_allclose(median["a"], mean[:, 0], atol=0.01)
    np.testing.assert_allclose(median["center"], center, atol=0.002)


@pytest.mark.nightly
def test_elements_are_those_of_the_full_guide_if_the_posterior_factorizes():
    x, y = data(3)
    params = {}
    for family in ("full", "plates"):
        guide = AutoNatural(lines, family=family)
        svi = SVI(lines, guide, optimizer(), Trace_ELBO())
        given = (x, y, jnp.array([1.0, -2.0]))
        run = svi.run(jax.random.key(0), 1, *given, progress_bar=False)
        params[family] = run.params
    whole, parts = params["full"]["auto_posterior"], params["plates"]
    parts = parts["auto_groups_posterior"]
    np.testing.assert_allclose(parts.location().T.ravel(), whole.location())
    cov = whole.covariance().reshape(2, 3, 2, 3)
    for g in range(3):
        np.testing.assert_allclose(parts.covariance()[g], cov[:, g, :, g], rtol=1e-8)


@pytest.mark.filterwarnings("ignore:Missing a plate")
def test_plates_in_plates_and_vectors_keep_their_places():
    def nested():
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 4, dim=-2):
            numpyro.sample("row", dist.Normal(level, 1.0))
            with numpyro.plate("columns", 3, dim=-1):
                numpyro.sample("cell", dist.Gamma(2.0, jnp.ones((4, 3))))
                numpyro.sample("mix", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("columns", 3, dim=-1):
            numpyro.sample("pair", dist.Normal(jnp.zeros((2, 3)), 1.0))

    guide = AutoNatural(nested, family="plates")
    with numpyro.handlers.seed(rng_seed=0):
        values = guide()
    shapes = {name: value.shape for name, value in values.items()}
    expected = {"level": (), "row": (4, 1), "cell": (4, 3), "mix": (4, 3, 3)}
    assert shapes == expected | {"pair": (2, 3)}
    start = {
        name: jnp.arange(v.size * 1.0).reshape(v.shape)
        for name, v in guide._init_locs.items()
    }
    names = {"", "rows", "columns", "rows_columns"}
    assert {block.name for block in guide._blocks} == names
    for block in guide._blocks:
        q = block.initial(start, 0.1)
        for name, value in block.unpack(q.location()).items():
            np.testing.assert_array_equal(value, start[name])
        if block.name == "rows_columns":
            assert q.location().shape == (4, 3, 1 + 2)
            np.testing.assert_array_equal(q.location()[2, 1], [7, 14, 15])
    initial = {
        f"auto{'_' * bool(b.name)}{b.name}_posterior": b.initial(start, 0.1)
        for b in guide._blocks
    }
    draws = Predictive(guide, params=initial, num_samples=5)(jax.random.key(0))
    assert draws["mix"].shape == (5, 4, 3, 3)


def test_what_is_between_elements_is_zero_on_average():
    """Elements of a plate may meet later in the model; their Hessians stay unbiased."""
    matrix = RNG.normal(size=(6, 6))
    matrix = jnp.asarray(matrix @ matrix.T)
    energy = lambda latent: latent["z"].ravel() @ matrix @ latent["z"].ravel() / 2
    roots = jnp.broadcast_to(0.3 * jnp.eye(2), (3, 2, 2))
    q = gaussian.Moments(jnp.ones((3, 2)), Sqrt(roots))
    draw = {"z": _estimate.sampler(jax.random.key(0), q, 4000)}
    found = _estimate.slopes_of(energy, {"z": q}, draw, jax.random.key(1), 1e-3)
    blocks = [matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] for k in range(3)]
    second = jnp.stack(blocks) / 2 + q.natural().second
    np.testing.assert_allclose(found.slopes["z"].second, second, atol=0.2)
    first = (matrix @ jnp.ones(6)).reshape(3, 2)
    np.testing.assert_allclose(found.slopes["z"].first, first, rtol=1e-6)
