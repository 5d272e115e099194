"""Forward mode, reverse mode and any two of them in turn give one derivative.

Compiling is what costs: all that is asserted of a function is computed by one program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import natgrad
from natgrad import _linear_map as linear_map
from natgrad.data import Batch
from natgrad.families import AbstractDistribution, diagonal, gaussian
from natgrad.gp import SparseGP, elbo, exact, kernels, likelihoods
from natgrad.gp._projection import inverse_factor, project
from natgrad.linalg import _triangular as triangular
from natgrad.positive import Log
from tests.points import POINTS, assert_close, covariance, flat, vector
from tests.variants import variants


RNG = np.random.default_rng(0)
COLUMNS = jnp.asarray(RNG.standard_normal((3, 4)))
SHORT = 1e-5


def assert_all_modes_agree(function, at, rtol: float = 1e-6):
    """Two derivatives along a direction, by all modes and by differences."""
    here, back = ravel_pytree(at)
    direction = jnp.asarray(np.random.default_rng(1).standard_normal(here.size))
    function = lambda x, given=function: given(back(x))

    @jax.jit
    def derivatives(x):
        along = lambda x: jax.jvp(function, (x,), (direction,))[1]
        value_and_slope = jax.value_and_grad(function)
        both, again = jax.jvp(value_and_slope, (x,), (direction,))
        return *both, again, jax.value_and_grad(along)(x)

    found, before, after = (
        derivatives(here + step * direction) for step in (0, -SHORT, SHORT)
    )
    _, slope, (first, second), (along, in_reverse) = found
    value, gradient = (
        (there - here) / (2 * SHORT)
        for there, here in zip(after[:2], before[:2], strict=True)
    )
    for other in (first, along, value):
        assert_close(other, slope @ direction, rtol=rtol, atol=rtol)
    for other in (in_reverse, gradient):
        assert_close(other, second, rtol=rtol, atol=rtol)


# What costs little to compile, and holds every rule of the library's own; the other
# points hold none.
OFTEN = ["gaussian.Moments(Full)", "gaussian.Moments(Sqrt)"]


@pytest.mark.parametrize("name", variants(POINTS, OFTEN))
def test_a_family_has_second_derivatives_in_all_modes(name):
    def loss(q: AbstractDistribution):
        eta = flat(q.expectation())
        value = jnp.sin(eta).sum() + jnp.sum(q.entropy())
        if isinstance(q, gaussian.AbstractGaussian):
            value += jnp.sin(q.variances(COLUMNS)).sum()
        return value

    assert_all_modes_agree(loss, POINTS[name])


@pytest.mark.nightly
def test_a_hessian_of_variances_is_what_plain_products_give():
    root = jnp.tril(covariance(3))
    ours = lambda root, x: triangular.upper_apply(jnp.tril(root), x)
    theirs = lambda root, x: jnp.tril(root).mT @ x
    form = lambda s, x: triangular.quadratic_form((s + s.mT) / 2, x)
    plain = lambda s, x: (x * ((s + s.mT) / 2 @ x)).sum(-2)
    for one, other in ((ours, theirs), (form, plain)):
        hessians = [
            jax.jit(jax.hessian(lambda m, x, f=f: jnp.sin(f(m, x)).sum(), (0, 1)))
            for f in (one, other)
        ]
        assert_close(*(hessian(root, COLUMNS) for hessian in hessians), atol=1e-12)


@pytest.mark.parametrize("is_whitened", variants([True, False], [True]))
def test_the_bound_has_second_derivatives_in_all_modes(is_whitened):
    x = jnp.asarray(RNG.uniform(-2, 2, (7, 2)))
    kernel = kernels.RBF([0.8, 1.1], 1.3)
    likelihood = likelihoods.Gaussian(0.3)
    model = SparseGP(kernel, likelihood, x[:3], is_whitened=is_whitened)
    batch = Batch(x, jnp.sin(x[:, 0]))
    assert_all_modes_agree(lambda model: elbo(model, batch), model, rtol=1e-5)


@pytest.mark.nightly
def test_projections_have_second_derivatives_in_all_modes():
    symmetric = lambda s: (s + s.mT) / 2

    def loss(given):
        prior, cross = given
        features = project(symmetric(prior), cross)
        return jnp.sin(features).sum() + jnp.cos(inverse_factor(symmetric(prior))).sum()

    assert_all_modes_agree(loss, (covariance(3), COLUMNS))


def test_the_evidence_has_second_derivatives_in_all_modes():
    def loss(given):
        prior, residual = given
        return exact._log_density((prior + prior.mT) / 2, residual)

    assert_all_modes_agree(loss, (covariance(3), vector(3)))


def test_reverse_mode_runs_the_transpose_that_is_written():
    forward = lambda kept, changes: kept[0] * changes[0] + changes[1]
    backward = lambda kept, slope: (10 * kept[0] * slope, slope)  # not the transpose

    @jax.custom_jvp
    def function(x, y):
        return x**2 / 2 + y

    @function.defjvp
    def _(primals, tangents):
        tangent = linear_map.tangent_by(forward, backward, primals[:1], tangents)
        return function(*primals), tangent

    two, three = jnp.asarray(2.0), jnp.asarray(3.0)
    assert jax.jvp(function, (two, three), (two, three))[1] == 7
    assert jax.grad(function, (0, 1))(two, three) == (20, 1)
    # By vmap too, of all arguments or of some.
    many = jnp.asarray([2.0, 5.0])
    one, shared = (jax.vmap(jax.grad(function), axes) for axes in (0, (0, None)))
    np.testing.assert_array_equal(one(many, many), [20, 50])
    np.testing.assert_array_equal(shared(many, three), [20, 50])
    of_shared = jax.vmap(jax.grad(function, 1), (None, 0))
    np.testing.assert_array_equal(of_shared(two, many), [1, 1])


def stepped(tx, target: jax.Array) -> jax.Array:
    """Where a step leads, as a function of what the loss leads to."""
    q, goal = (diagonal.Moments(mean, Log(mean)) for mean in (jnp.zeros(2), target))
    loss = lambda q: q.kl(goal)
    tx = optax.with_extra_args_support(tx)
    value, grads = jax.value_and_grad(loss)(q)
    updates, _ = tx.update(grads, tx.init(q), q, value=value, value_fn=loss)
    return flat(optax.apply_updates(q, updates))


def test_a_guarded_step_is_differentiated_forward_and_refused_in_reverse():
    target = jnp.asarray([1.3, -0.4])
    guarded = lambda target: stepped(natgrad.guarded_ngd(), target)
    fixed = lambda target: stepped(natgrad.mirror_descent(1.0), target)
    # The loss is conjugate, so that both take the step of size 1.
    assert_close(
        jax.jit(jax.jacfwd(guarded))(target), jax.jit(jax.jacrev(fixed))(target)
    )
    with pytest.raises(ValueError, match="guarded_ngd.*jax.jvp.*mirror_descent"):
        jax.jit(jax.jacrev(guarded))(target)


@pytest.mark.parametrize(
    "tx",
    [
        natgrad.guarded_ngd(),
        natgrad.split(natgrad.guarded_ngd(), optax.adam(0.01)),
        natgrad.ngd(0.1),
        natgrad.mirror_descent(0.1),
    ],
    ids=["guarded", "split", "ngd", "mirror"],
)
def test_parameters_and_state_can_be_donated(tx):
    goal = diagonal.Moments(jnp.zeros(2), Log(jnp.zeros(2)))
    loss = lambda params: params["q"].kl(goal) + params["noise"] ** 2
    tx = optax.with_extra_args_support(tx)

    def step(params, state):
        value, grads = jax.value_and_grad(loss)(params)
        seen = {"value": value, "grad": grads, "value_fn": loss}
        with jax.numpy_dtype_promotion("standard"):
            updates, state = tx.update(grads, state, params, **seen)
        return optax.apply_updates(params, updates), state

    q = diagonal.Moments(jnp.ones(2), Log(jnp.ones(2)))
    params = {"q": q, "noise": jnp.full((), 0.5, float)}
    state = tx.init(params)
    donated = jax.jit(step, donate_argnums=(0, 1))
    before = float(loss(params))
    for _ in range(2):
        params, state = donated(params, state)
    assert float(loss(params)) < before
