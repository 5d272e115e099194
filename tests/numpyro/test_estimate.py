"""Slopes of an expected energy, from draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.families import diagonal, gamma, gaussian
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
