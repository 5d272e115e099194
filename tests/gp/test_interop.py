"""Kernels of other libraries are the same kernels here."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from jax.flatten_util import ravel_pytree
from sklearn.gaussian_process import kernels as sk

from natgrad.errors import InputError, InputWarning
from natgrad.gp._interop import (
    as_kernel,
    from_gpjax,
    from_sklearn,
    from_tinygp,
    to_sklearn,
)
from natgrad.gp.kernels import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnInputs,
    Periodic,
    Polynomial,
    RationalQuadratic,
)


RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(6, 2)), RNG.normal(size=(4, 2))
EACH = np.asarray([0.6, 1.3])
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
    assert_close(grad, difference, 1e-7)
    assert (grad != 0).all()
    leaves = jax.tree.leaves(kernel)
    assert all(leaf.dtype == np.float64 and not leaf.weak_type for leaf in leaves)


TINYGP = {
    "squared": (lambda: tinygp.kernels.ExpSquared(number(0.7)), 1),
    "scaled": (
        lambda: (
            number(1.5) * tinygp.kernels.Matern32(number(0.7))
            + tinygp.kernels.DotProduct()
        ),
        2,
    ),
    "quadratic": (
        lambda: tinygp.kernels.RationalQuadratic(scale=number(0.7), alpha=number(1.2)),
        2,
    ),
    "polynomial": (
        lambda: tinygp.kernels.Polynomial(
            order=number(2.0), scale=number(0.7), sigma=number(0.4)
        ),
        2,
    ),
    "transformed": (
        lambda: tinygp.transforms.Linear(
            jnp.asarray([0.5, -0.8]), tinygp.kernels.Matern52(number(0.7))
        ),
        3,
    ),
    "subspace": (
        lambda: tinygp.transforms.Subspace(
            1, tinygp.kernels.ExpSineSquared(scale=number(0.9), gamma=number(0.8))
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", TINYGP)
def test_kernels_of_tinygp_are_the_same_here(name):
    make, num_parameters = TINYGP[name]
    theirs, x, z = make(), jnp.asarray(X), jnp.asarray(Z)
    ours = as_kernel(theirs)
    check_kernel(ours, theirs(x, z), theirs(x), theirs(x, x))
    assert ravel_pytree(ours)[0].size == num_parameters


def test_positive_parameters_of_tinygp_stay_positive_and_others_are_free():
    x, z = jnp.asarray(X), jnp.asarray(Z)
    theirs = TINYGP["transformed"][0]()
    ours = from_tinygp(theirs)
    moved = jax.tree.map(lambda leaf: leaf - 3, ours).kernel
    assert_close(moved.scale, theirs.scale - 3)
    assert_close(moved.kernel.scale, theirs.kernel.scale * np.exp(-3))
    positive = tinygp.transforms.Linear(jnp.asarray(EACH), theirs.kernel)
    free = from_tinygp(positive, real=("scale",))
    assert_close(free.parameters[0], EACH)
    assert_close(free(x, z), positive(x, z))


def test_plain_numbers_of_tinygp_become_parameters_with_a_word():
    with pytest.warns(InputWarning, match=r"plain numbers \(value, scale\)") as caught:
        ours = as_kernel(2.0 * tinygp.kernels.ExpSquared(0.7))
    assert len(caught) == 1
    x, z = jnp.asarray(X), jnp.asarray(Z)
    assert_close(ours(x, z), 2 * RBF(0.7)(x, z))
    assert len(jax.tree.leaves(ours)) == 2


def gpjax_cases():
    gpjax = pytest.importorskip("gpjax")  # its releases cap jax

    k = gpjax.kernels
    return {
        "rbf": (k.RBF(lengthscale=jnp.asarray(EACH), variance=1.5), RBF(EACH, 1.5)),
        "matern12": (k.Matern12(lengthscale=0.7, variance=1.5), Matern12(0.7, 1.5)),
        "matern32": (k.Matern32(lengthscale=jnp.asarray(EACH)), Matern32(EACH)),
        "matern52": (k.Matern52(lengthscale=0.7), Matern52(0.7)),
        "quadratic": (
            k.RationalQuadratic(lengthscale=0.7, alpha=1.2),
            RationalQuadratic(0.7, alpha=1.2),
        ),
        "linear": (k.Linear(variance=1.5), Linear(1.5)),
        "sum": (k.RBF() + k.Linear(), RBF() + Linear()),
        "product": (
            k.RBF(active_dims=[0]) * k.Matern52(active_dims=[1]),
            OnInputs(RBF(), (0,)) * OnInputs(Matern52(), (1,)),
        ),
    }


def test_kernels_of_gpjax_are_the_same_here():
    x, z = jnp.asarray(X), jnp.asarray(Z)
    for theirs, same in gpjax_cases().values():
        ours = as_kernel(theirs)
        cross = theirs.cross_covariance(x, z)
        check_kernel(ours, cross, same.diag(x), same(x, x))
        assert_close(cross, same(x, z))


def test_parameters_of_gpjax_stay_positive():
    gpjax = pytest.importorskip("gpjax")  # its releases cap jax

    theirs = gpjax.kernels.RBF(lengthscale=0.7, variance=1.5)
    moved = jax.tree.map(lambda leaf: leaf - 30, from_gpjax(theirs)).kernel
    values = moved.lengthscale.unwrap(), moved.variance.unwrap()
    assert all(0 < value < 1e-10 for value in values)


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
def test_kernels_of_scikit_learn_are_translated_both_ways(name):
    theirs, ours = SKLEARN[name]
    there = as_kernel(theirs)
    for one, other in zip(*map(jax.tree.leaves, (there, ours)), strict=True):
        assert_close(one, other)
    assert jax.tree.structure(there) == jax.tree.structure(ours)
    x, z = jnp.asarray(X), jnp.asarray(Z)
    cross, diag = jax.jit(lambda k: (k(x, z), k.diag(x)))(there)
    back = to_sklearn(there)
    for kernel in (theirs, back):
        assert_close(cross, kernel(X, Z))
        assert_close(diag, kernel.diag(X))


def test_the_periodic_kernel_of_scikit_learn_is_one_of_a_single_input():
    theirs = sk.ExpSineSquared(0.7, 1.9)
    ours = from_sklearn(1.5 * theirs)
    cross = ours(jnp.asarray(X[:, :1]), jnp.asarray(Z[:, :1]))
    assert_close(cross, 1.5 * theirs(X[:, :1], Z[:, :1]))
    assert_close(cross, to_sklearn(ours)(X[:, :1], Z[:, :1]))
    with pytest.raises(InputError, match="2 columns"):
        ours(jnp.asarray(X), jnp.asarray(Z))


def test_polynomials_are_translated_with_their_lengthscale():
    ours = Polynomial(2, 0.8, 1.7, 0.4)
    assert_close(ours(jnp.asarray(X), jnp.asarray(Z)), to_sklearn(ours)(X, Z))


@pytest.mark.parametrize(
    "kernel, word",
    [
        (sk.RBF() + sk.WhiteKernel(), "belongs to the likelihood"),
        (sk.Matern(nu=1.0), "nu = 1.0"),
        (sk.RBF() ** 2, "no counterpart"),
        (sk.DotProduct() ** 1.5, "no counterpart"),
        (sk.DotProduct(0.0) ** 2, "offset"),
        (sk.PairwiseKernel(), "no counterpart"),
    ],
)
def test_what_has_no_translation_is_refused(kernel, word):
    with pytest.raises(InputError, match=word):
        as_kernel(kernel)


@pytest.mark.parametrize(
    "kernel, word",
    [
        (OnInputs(RBF(), (0,)), "OnInputs"),
        (Linear(EACH), "variance of Linear"),
        (RationalQuadratic(EACH), "lengthscale of RationalQuadratic"),
        (Periodic(period=EACH), "period of Periodic"),
    ],
)
def test_what_scikit_learn_does_not_have_is_refused(kernel, word):
    with pytest.raises(InputError, match=word):
        to_sklearn(kernel)


def test_a_formula_of_ones_own_is_not_taken_for_that_of_its_parent():
    class Cauchy(RBF):
        def of_squared_distance(self, squared):
            return self.variance / (1 + squared)

    class Renamed(RBF):
        pass

    with pytest.raises(InputError, match="Cauchy has no counterpart"):
        to_sklearn(RBF() + Cauchy(2.0))
    assert to_sklearn(Renamed(2.0)) == to_sklearn(RBF(2.0))


def test_any_function_of_two_sets_of_points_is_a_kernel():
    class Cosine(eqx.Module):
        scale: jax.Array
        turn: object  # a leaf that is no array

        def __call__(self, x, z):
            return self.turn(self.scale * (x[:, :1] - z[:, :1].T))

    x = X[:, :1]
    cosine = lambda x, z: np.cos(0.7 * (x - z.T))
    ours = as_kernel(Cosine(jnp.asarray(0.7), jnp.cos))
    check_kernel(ours, cosine(x, Z[:, :1]), np.ones(len(X)), cosine(x, x))
    plain = as_kernel(lambda x, z: jnp.cos(0.7 * (x[:, :1] - z[:, :1].T)))
    assert not jax.tree.leaves(plain)
    assert_close(plain(jnp.asarray(X), jnp.asarray(Z)), cosine(x, Z[:, :1]))
    both = as_kernel(RBF()) * plain
    assert_close(both.diag(jnp.asarray(X)), np.ones(len(X)))


def test_kernels_of_ours_pass_and_what_is_none_is_refused():
    kernel = RBF()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_kernel(kernel) is kernel
    with pytest.raises(InputError, match="'rbf'"):
        as_kernel("rbf")
