"""Slopes of an expected energy, from draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.families import beta, diagonal, dirichlet, gamma, gaussian
from natgrad.linalg import Sqrt
from natgrad.numpyro import _estimate
from natgrad.positive import Log


ROOT = jnp.array([[0.5, 0.0], [0.2, 0.7]])
MEAN = jnp.array([0.3, -0.4])
POINTS = {
    "full": gaussian.Moments(MEAN, Sqrt(ROOT)),
    "diagonal": diagonal.Moments(MEAN, Log(jnp.array([-1.0, 0.2]))),
}


def energy(z):
    """A quartic, whose moments under a Gaussian are polynomials."""
    return z[0] ** 4 / 8 + z[0] * z[1] ** 2 / 3 + z[1] ** 2


def exact(q):
    """E[energy] − entropy from a grid of Gauss–Hermite points, exact to degree 19."""
    points, weights = np.polynomial.hermite_e.hermegauss(10)
    noise = jnp.stack(jnp.meshgrid(points, points), -1).reshape(-1, 2)
    weight = jnp.outer(weights, weights).ravel() / (2 * np.pi)
    values = jax.vmap(energy)(_estimate.drawn(q, noise))
    return jnp.vdot(weight, values) - q.entropy()


def slope(q, draws, key):
    samplers = {"z": _estimate.sampler(key, q, draws)}
    at = lambda latent: energy(latent["z"])
    found = _estimate.slopes_of(at, {"z": q}, samplers, key, 1e-3)
    return found.mean, found.slopes["z"]


@pytest.mark.parametrize(
    ("name", "limit"), [("full", 300), ("diagonal", 300), ("diagonal", 1)]
)
def test_the_slope_is_that_of_the_expected_energy(name, limit, monkeypatch):
    monkeypatch.setattr(_estimate, "HESSIAN", limit)
    q = POINTS[name]
    expected = q.slope(jax.grad(exact)(q))
    value, found = slope(q, 20_000, jax.random.key(0))
    np.testing.assert_allclose(value - q.entropy(), exact(q), atol=0.02)
    np.testing.assert_allclose(found.first, expected.first, atol=0.02)
    np.testing.assert_allclose(found.second, expected.second, atol=0.02)


@pytest.mark.parametrize("draws", [2, 8, 9])
def test_noise_comes_in_pairs_with_the_second_moment_of_a_normal(draws):
    noise = _estimate.paired_noise(jax.random.key(0), draws, (2,), jnp.dtype(float))
    assert len(noise) == draws + draws % 2
    np.testing.assert_allclose(noise.sum(0), 0, atol=1e-12)
    moment = noise.T @ noise / len(noise)
    np.testing.assert_allclose(jnp.trace(moment), 2, rtol=1e-12)
    if draws >= 8:
        np.testing.assert_allclose(moment, np.eye(2), atol=1e-12)


def test_a_family_without_noise_draws_with_the_same_numbers_at_all_members():
    q = gamma.ShapeRate(Log(jnp.array([0.5])), Log(jnp.array([0.0])))
    draw = _estimate.sampler(jax.random.key(0), q, 3)
    np.testing.assert_array_equal(draw(q), draw(q))
    assert draw(q).shape == (3, 1)


FITTED = {
    "gamma": gamma.ShapeRate(Log(jnp.log(jnp.array([3.0, 40.0]))), Log(jnp.zeros(2))),
    "beta": beta.Concentrations(
        Log(jnp.log(jnp.array([3.0, 9.0]))), Log(jnp.log(jnp.array([4.0, 2.0])))
    ),
    "dirichlet": dirichlet.Concentrations(Log(jnp.log(jnp.array([[1.5, 3.0, 9.0]])))),
}


def fit_of(q, energy, draws):
    draw = {"z": _estimate.sampler(jax.random.key(0), q, draws)}
    at = lambda latent: energy(latent["z"])
    key = jax.random.key(1)
    return _estimate.slopes_of(at, {"z": q}, draw, key, 1.0)


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_finds_an_energy_of_the_statistics_from_eight_draws(name):
    q = FITTED[name]
    rising = lambda t: 1 + jnp.arange(t.size, dtype=float).reshape(t.shape)
    weights = jax.tree.map(rising, q.natural())

    def energy(z):
        terms = jax.tree.map(lambda w, t: (w * t).sum(), weights, q.statistics(z))
        return sum(jax.tree.leaves(terms))

    found = fit_of(q, energy, 8).fits["z"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), found, weights
    )


def test_a_fit_of_many_draws_is_the_natural_gradient():
    """Of E[z³/9 + 1/z] at a gamma, whose moments are rational."""
    q = FITTED["gamma"]

    def expected(q):
        shape, rate = q.shape_rate()
        cubic = shape * (shape + 1) * (shape + 2) / rate**3
        return (cubic / 9 + rate / (shape - 1)).sum()

    found = fit_of(q, lambda z: (z**3 / 9 + 1 / z).sum(), 40_000)
    exact = q.slope(jax.grad(expected)(q))
    np.testing.assert_allclose(found.mean, expected(q), rtol=0.01)
    np.testing.assert_allclose(found.fits["z"].log, exact.log, rtol=0.05)
    np.testing.assert_allclose(found.fits["z"].value, exact.value, rtol=0.05)


@pytest.mark.parametrize("size", [1.0, 0.2])
def test_a_negative_curvature_halves_a_precision_at_most(size):
    """The others are what they are, and a step of this size stays inside."""
    q = POINTS["full"]
    axes = jnp.array([[0.6, -0.8], [0.8, 0.6]])
    relative = axes @ jnp.diag(jnp.array([-30.0, 4.0])) @ axes.T
    inverse = jnp.linalg.inv(ROOT)
    hessian = inverse.T @ relative @ inverse
    found = _estimate.inside(q, hessian, 1 - 0.5 / size)
    precision = (1 - size) * inverse.T @ inverse + size * found
    values = jnp.linalg.eigvalsh(ROOT.T @ precision @ ROOT)
    np.testing.assert_allclose(values, [0.5, 1 + 3 * size], rtol=1e-9)
    concave = inverse.T @ inverse
    np.testing.assert_array_equal(_estimate.inside(q, concave, 0.5), concave)
