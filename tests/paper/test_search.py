"""Laws of what needs no noise: line search and L-BFGS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natgrad
from natgrad.families import gaussian
from natgrad.linalg import Full, Log, Sqrt
from paper.search import lbfgs, line_search


RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 3))
PRECISION = jnp.asarray(A.T @ A + np.eye(3))
TARGET = gaussian.Moments(jnp.array([1.0, -2.0, 0.5]), Full(jnp.linalg.inv(PRECISION)))


def loss(q):
    """It is convex in θ, but not quadratic."""
    return q.kl(TARGET).sum()


def start(matrix):
    return gaussian.Moments(jnp.zeros(3), matrix.at(4 * jnp.eye(3)))


@pytest.mark.parametrize("matrix", [Full, Sqrt, Log])
def test_no_step_along_the_line_is_better(matrix):
    q = start(matrix(jnp.eye(3)))
    grads = jax.grad(loss)(q)
    for direction in (grads, natgrad.natural_gradient(q, grads)):
        found = line_search(loss, q, direction)
        np.testing.assert_allclose(float(loss(found.params)), found.loss, rtol=1e-12)
        assert found.loss < loss(q)
        for factor in (0.5, 0.99, 0.999, 1.001, 1.01, 2.0):
            move = lambda p, d, size=factor * found.size: p - size * d
            there = jax.tree.map(move, q, direction)
            assert not there.is_inside() or loss(there) > found.loss - 1e-12


def test_along_the_natural_gradient_in_theta_the_best_step_is_one():
    q = gaussian.Canonical(jnp.zeros(3), Full(jnp.eye(3) / 4))
    # KL(q ‖ p) is the loss of a conjugate model.
    found = line_search(loss, q, natgrad.natural_gradient(q, jax.grad(loss)(q)))
    np.testing.assert_allclose(found.size, 1, rtol=1e-5)
    assert abs(found.loss) < 1e-9


def test_where_no_step_helps_none_is_taken():
    q = start(Sqrt(jnp.eye(3)))
    uphill = jax.tree.map(jnp.negative, jax.grad(loss)(q))
    found = line_search(loss, q, uphill)
    assert found.size == 0 and found.params is q


def test_lbfgs_finds_the_minimum_and_keeps_the_best_it_saw():
    seen = []
    found = lbfgs(loss, start(Sqrt(jnp.eye(3))), callback=lambda n, q: seen.append(n))
    assert found.loss < 1e-8 and found.loss == min(found.losses)
    assert seen == list(range(1, len(seen) + 1))
    np.testing.assert_allclose(found.params.mean, TARGET.mean, atol=1e-3)
    rosenbrock = lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
    found = lbfgs(rosenbrock, jnp.array([-1.2, 1.0]))
    np.testing.assert_allclose(found.params, 1, atol=1e-4)
    walled = lambda x: jnp.log(x).sum() ** 2 + x.sum()
    found = lbfgs(walled, jnp.array([5.0, 5.0]))
    np.testing.assert_allclose(found.params, 0.81555, atol=1e-4)
