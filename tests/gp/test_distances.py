"""Distances take one matrix product, and no array of all pairs and all inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.gp._distances import squared_distance
from natgrad.gp.kernels import RBF, Matern52, Separate
from tests.gp.kernels import CASES, EACH, assert_close, pairs


@pytest.fixture(params=CASES)
def name(request):
    return request.param


def sizes(jaxpr):
    """The shape of every array that a program makes, in all its parts."""
    for equation in jaxpr.eqns:
        yield from (v.aval.shape for v in equation.outvars)
        for part in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda p: isinstance(p, jax.extend.core.ClosedJaxpr),
        ):
            inside = getattr(part, "jaxpr", part)
            if isinstance(inside, jax.extend.core.Jaxpr):
                yield from sizes(inside)


def products(jaxpr) -> list:
    """The shapes of all products of matrices in a program."""
    shapes = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            shape = equation.outvars[0].aval.shape
            is_product = len(shape) == 2 and equation.params["dimension_numbers"][0][0]
            shapes += [tuple(sorted(shape))] if is_product else []
        for part in jax.tree.leaves(list(equation.params.values())):
            inside = getattr(part, "jaxpr", part)
            if isinstance(inside, jax.extend.core.Jaxpr):
                shapes += products(inside)
    return shapes


N, M, D = 101, 53, 3


def program(of, *args):
    return jax.make_jaxpr(jax.value_and_grad(of))(*args).jaxpr


def test_no_array_holds_all_pairs_and_all_inputs(name):
    kernel = CASES[name][0]
    x, z = jnp.ones((N, D)), jnp.ones((M, D))
    both = program(lambda args: args[0](*args[1:]).sum(), (kernel, x, z))
    within = program(lambda args: args[0](args[1], args[1]).sum(), (kernel, x))
    diag = program(lambda args: args[0].diag(args[1]).sum(), (kernel, x))
    assert max(map(np.prod, sizes(both))) < N * M * 2
    assert max(map(np.prod, sizes(within))) < N * N * 2
    assert max(map(np.prod, sizes(diag))) < N * D * 3


@pytest.mark.parametrize("lengthscale", [0.8, EACH])
def test_a_gradient_takes_one_product_more_for_points_that_move(lengthscale):
    x, z, kernel = jnp.ones((N, D)), jnp.ones((M, D)), Matern52(lengthscale)
    value, moves_x, moves_z = (M, N), (D, N), (D, M)
    first = program(lambda args: args[0](args[1], z).sum(), (kernel, x))
    second = program(lambda args: args[0](x, args[1]).sum(), (kernel, z))
    both = program(lambda args: args[0](*args[1:]).sum(), (kernel, x, z))
    within = program(lambda args: args[0](args[1], args[1]).sum(), (kernel, x))
    assert sorted(products(first)) == [moves_x, value]
    assert sorted(products(second)) == [moves_z, value]
    assert sorted(products(both)) == [moves_z, moves_x, value]
    assert sorted(products(within)) == [moves_x, (N, N)]


def test_a_gradient_is_the_same_whatever_else_moves():
    rng = np.random.default_rng(0)
    args = jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(4, 3)))
    args += (jnp.asarray(EACH),)
    weights = jnp.asarray(rng.normal(size=(5, 4)))
    of = lambda x, z, weight: (weights * squared_distance(x, z, weight) ** 2).sum()
    some = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    grads = lambda *args: [jax.grad(of, which)(*args) for which in some]
    together = jax.jit(jax.grad(of, (0, 1, 2)))(*args)
    for which, grad in zip(some, jax.jit(grads)(*args), strict=True):
        for one, place in zip(grad, which, strict=True):
            assert_close(one, together[place])
    difference = pairs(*map(np.asarray, args[:2]))
    squared = (difference**2 * EACH).sum(-1)
    slope = (2 * np.asarray(weights) * squared)[..., None]
    assert_close(together[0], (slope * 2 * EACH * difference).sum(1))
    assert_close(together[1], -(slope * 2 * EACH * difference).sum(0))
    assert_close(together[2], (slope * difference**2).sum((0, 1)))


@pytest.mark.parametrize("weight", [2.0, EACH])
def test_distances_within_a_set_are_exactly_symmetric_and_zero_from_itself(weight):
    rng = np.random.default_rng(0)
    x = jnp.asarray(1e3 * rng.normal(size=(40, 3)) + 1e5)
    within = jax.jit(lambda x: squared_distance(x, x, jnp.asarray(weight)))(x)
    assert (within == within.T).all()
    assert (jnp.diag(within) == 0).all()
    assert (squared_distance(x, x + 0, jnp.asarray(weight)) >= 0).all()
    assert_close(within, (weight * pairs(np.asarray(x), np.asarray(x)) ** 2).sum(-1))


def test_separate_kernels_of_one_lengthscale_share_their_distances():
    x, z = jnp.ones((N, D)), jnp.ones((M, D))
    separate = Separate([RBF(0.8), RBF(1.3), RBF(2.0)])
    assert products(jax.make_jaxpr(separate)(x, z).jaxpr) == [(M, N)]


def test_a_far_row_costs_the_others_no_digits():
    rng = np.random.default_rng(0)
    near, z, weight = rng.standard_normal((5, 3)), rng.random((4, 3)), jnp.ones(3)
    alone = squared_distance(jnp.asarray(z), jnp.asarray(near), weight)
    far = np.vstack([near, np.full((1, 3), 1e8)])
    beside = squared_distance(jnp.asarray(z), jnp.asarray(far), weight)
    np.testing.assert_allclose(beside[:, :5], alone, rtol=1e-13)
