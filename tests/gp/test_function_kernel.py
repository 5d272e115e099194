"""A function of two rows is a kernel like any other."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from jax.flatten_util import ravel_pytree

from natgrad import gp
from natgrad.data import Batch
from natgrad.gp import likelihoods
from natgrad.gp.kernels import RBF, FromFunction


RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(6, 2)), RNG.normal(size=(4, 2))
number = lambda value: jnp.asarray(value, dtype=float)


def assert_close(one, other, rtol=1e-12):
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def check_kernel(kernel, expected, diagonal, within) -> None:
    """Its matrices, the gradient of every parameter, and that it lives under jit."""
    x, z = jnp.asarray(X), jnp.asarray(Z)
    flat, unravel = ravel_pytree(kernel)
    weights = jnp.linspace(0.4, 1.3, len(X) * len(Z)).reshape(len(X), len(Z))
    of = lambda flat: (weights * unravel(flat)(x, z)).sum()
    steps = 1e-5 * jnp.eye(len(flat))

    @jax.jit
    def report(kernel):
        there, back = jax.vmap(lambda s: (of(flat + s), of(flat - s)))(steps)
        matrices = kernel(x, z), kernel.diag(x), kernel(x, x)
        return *matrices, jax.grad(of)(flat), (there - back) / 2e-5

    cross, diag, gram, grad, difference = report(kernel)
    assert_close(cross, expected)
    assert_close(diag, diagonal)
    assert_close(gram, within)
    np.testing.assert_array_equal(gram, gram.T)
    assert_close(grad, difference, 1e-7)
    assert (grad != 0).all()
    leaves = jax.tree.leaves(kernel)
    assert all(leaf.dtype == np.float64 and not leaf.weak_type for leaf in leaves)


TINYGP = {
    "squared": (lambda: tinygp.kernels.ExpSquared(number(0.7)), RBF(0.7), 1),
    "plain_numbers": (lambda: 2.0 * tinygp.kernels.ExpSquared(0.7), RBF(0.7, 2.0), 2),
}


@pytest.mark.parametrize("name", TINYGP)
def test_kernels_of_tinygp_are_the_same_here(name):
    make, same, num_parameters = TINYGP[name]
    theirs, x, z = make(), jnp.asarray(X), jnp.asarray(Z)
    ours = FromFunction(theirs.evaluate)
    check_kernel(ours, theirs(x, z), theirs(x), theirs(x, x))
    assert_close(ours(x, z), same(x, z))
    assert ravel_pytree(ours)[0].size == num_parameters


class Cosine(eqx.Module):
    scale: jax.Array
    turn: Any  # a leaf that is no array

    def __call__(self, a, b):
        return self.turn(self.scale * (a[0] - b[0]))


def smooth(log_scale, a, b):
    return jnp.exp(-((a - b) ** 2).sum() / (2 * jnp.exp(2 * log_scale)))


def test_any_function_of_two_rows_is_a_kernel():
    cosine = lambda x, z: np.cos(0.7 * (x[:, :1] - z[:, :1].T))
    x, z = jnp.asarray(X), jnp.asarray(Z)
    ours = FromFunction(Cosine(number(0.7), jnp.cos))
    assert_close(eqx.filter_jit(ours)(x, z), cosine(X, Z))
    plain = FromFunction(lambda a, b: jnp.cos(0.7 * (a[0] - b[0])))
    assert not jax.tree.leaves(plain)
    assert_close(plain(x, z), cosine(X, Z))
    both = RBF() * plain
    assert_close(both.diag(x), np.ones(len(X)))
    assert_close(both(x, z), RBF()(x, z) * cosine(X, Z))


def test_the_arguments_of_a_partial_are_parameters():
    ours = FromFunction(jax.tree_util.Partial(smooth, np.log(0.7)))
    same, x, z = RBF(0.7), jnp.asarray(X), jnp.asarray(Z)
    check_kernel(ours, same(x, z), same.diag(x), same(x, x))


@pytest.mark.filterwarnings("ignore:there are 6 distinct rows")
def test_a_model_learns_the_parameters_of_a_function():
    y = np.sin(2 * X[:, 0])
    kernel = FromFunction(Cosine(number(0.7), jnp.cos)) + RBF()
    model = gp.SparseGP(kernel, likelihoods.Gaussian(0.1), Z)
    fitted, _ = gp.fit(model, (X, y), steps=3, progress=False)
    function = fitted.kernel.first.function
    assert function.turn is jnp.cos and function.scale != 0.7
    rows = Batch(jnp.asarray(X), jnp.asarray(y))
    assert gp.elbo(fitted, rows) > gp.elbo(model, rows)
