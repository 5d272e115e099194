"""Kernels of scikit-learn are the same kernels here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from natgrad.errors import InputError
from natgrad.gp.kernels import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
)
from natgrad.sklearn import GPRegressor
from natgrad.sklearn._kernels import as_kernel


RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(6, 2)), RNG.normal(size=(4, 2))
EACH = np.asarray([0.6, 1.3])


def assert_close(one, other, rtol=1e-12):
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


SKLEARN = {
    "rbf": (sk.RBF(EACH), RBF(EACH)),
    "matern12": (sk.Matern(0.7, nu=0.5), Matern12(0.7)),
    "matern32": (1.5 * sk.Matern(EACH, nu=1.5), Matern32(EACH, 1.5)),
    "matern52": (sk.Matern(0.7, nu=2.5) * 1.5, Matern52(0.7, 1.5)),
    "twice": (2.0 * (1.5 * sk.RBF(0.7)), RBF(0.7, 3.0)),
    "smooth": (sk.Matern(0.7, nu=np.inf), RBF(0.7)),
    "quadratic": (sk.RationalQuadratic(0.7, 1.2), RationalQuadratic(0.7, alpha=1.2)),
    "dot": (sk.DotProduct(0.5), Linear(1.0) + 0.25),
    "through_zero": (2.0 * sk.DotProduct(0.0), Linear(2.0)),
    "power": (2.0 * sk.DotProduct(0.5) ** 3, Polynomial(3, 1.0, 2.0, 0.25)),
    "constant": (sk.ConstantKernel(0.9), Constant(0.9)),
    "sum": (sk.RBF(0.7) + 0.5 * sk.Matern(1.2, nu=1.5), RBF(0.7) + Matern32(1.2, 0.5)),
    "product": (sk.RBF(0.7) * sk.DotProduct(0.5), RBF(0.7) * (Linear(1.0) + 0.25)),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_kernels_of_scikit_learn_are_translated(name):
    theirs, ours = SKLEARN[name]
    there = as_kernel(theirs)
    for one, other in zip(*map(jax.tree.leaves, (there, ours)), strict=True):
        assert_close(one, other)
    assert jax.tree.structure(there) == jax.tree.structure(ours)
    x, z = jnp.asarray(X), jnp.asarray(Z)
    cross, diag = jax.jit(lambda k: (k(x, z), k.diag(x)))(there)
    assert_close(cross, theirs(X, Z))
    assert_close(diag, theirs.diag(X))


def test_the_periodic_kernel_of_scikit_learn_is_one_of_a_single_input():
    theirs = sk.ExpSineSquared(0.7, 1.9)
    ours = as_kernel(1.5 * theirs)
    cross = ours(jnp.asarray(X[:, :1]), jnp.asarray(Z[:, :1]))
    assert_close(cross, 1.5 * theirs(X[:, :1], Z[:, :1]))
    with pytest.raises(InputError, match="2 columns"):
        ours(jnp.asarray(X), jnp.asarray(Z))


@pytest.mark.parametrize(
    "kernel, word",
    [
        (sk.RBF() + sk.WhiteKernel(), "belongs to the likelihood"),
        (sk.Matern(nu=1.0), "nu = 1.0"),
        (sk.RBF() ** 2, "no counterpart"),
        (sk.DotProduct() ** 1.5, "no counterpart"),
        (sk.DotProduct(0.0) ** 2, "offset"),
        (sk.PairwiseKernel(), "no counterpart"),
        (lambda x, z: x @ z.T, "FromFunction makes"),
        (RBF, "FromFunction makes"),
    ],
)
def test_what_has_no_translation_is_refused(kernel, word):
    with pytest.raises(InputError, match=word):
        as_kernel(kernel)
    with pytest.raises(InputError, match=word):
        GPRegressor(kernel=kernel, verbose=False).fit(X, X[:, 0])


def test_kernels_of_natgrad_pass():
    kernel = RBF()
    assert as_kernel(kernel) is kernel
