"""Gaussians of low-rank precision: the laws that hold without an exponential family.

Compiling is what costs: all that is asserted at a point is computed by one program.
"""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import natgrad
from natgrad.errors import InputError
from natgrad.families import AbstractDistribution, diagonal, gamma, gaussian, low_rank
from natgrad.linalg import Full
from natgrad.positive import Log, Plain, Softplus
from tests.points import assert_close, covariance, flat, vector
from tests.variants import variants


RNG = np.random.default_rng(0)
SIZE, RANK, DRAWS = 5, 2, 20_000


def made(size=SIZE, rank=RANK, batch=(), scale=1.0):
    normal = lambda *shape: jnp.asarray(RNG.standard_normal((*batch, *shape)))
    factors = scale * normal(size, rank)
    return low_rank.MeanPrecision(normal(size), Log(0.5 * normal(size)), factors)


def as_full(q):
    """The same Gaussian as one of full covariance."""
    return gaussian.Moments(q.mean, Full(jnp.linalg.inv(-2 * q.natural().second)))


Q, P = made(), made()
STORAGES = {
    "Log": Q,
    "Plain": low_rank.MeanPrecision(Q.mean, Plain(jnp.exp(Q.diagonal.log)), Q.factors),
    "Softplus": low_rank.MeanPrecision(
        Q.mean, Softplus(jnp.log(jnp.expm1(jnp.exp(Q.diagonal.log)))), Q.factors
    ),
    "turned": low_rank.MeanPrecision(
        Q.mean, Q.diagonal, Q.factors @ jnp.asarray([[0.6, -0.8], [0.8, 0.6]])
    ),
}


def loss(q: AbstractDistribution) -> jax.Array:
    """Smooth and without symmetry, so that no term of a gradient hides."""
    eta = flat(q.expectation())
    weights = jnp.linspace(0.3, 1.1, eta.size)
    return jnp.sum(jnp.sin(weights * eta) + weights[::-1] * eta) + q.entropy()


@functools.cache
def at(name: str) -> dict:
    """The natural gradient at a point, its push to θ, and the Fisher matrix."""

    @jax.jit
    def computed(q):
        coordinates, unravel = ravel_pytree(q)
        theta, unravel_theta = ravel_pytree(q.natural())
        grad = jax.grad(loss)(q)
        return dict(
            grad=flat(grad),
            direction=flat(natgrad.natural_gradient(q, grad)),
            jacobian=jax.jacobian(lambda x: flat(unravel(x).natural()))(coordinates),
            curvature=jax.hessian(lambda t: q.log_normalizer(unravel_theta(t)))(theta),
        )

    return computed(STORAGES[name])


def test_it_is_the_full_gaussian_of_its_precision():
    @jax.jit
    def both(q, p):
        full, other = as_full(q), as_full(p)
        part = diagonal.Moments(vector(SIZE), Plain(jnp.exp(vector(SIZE, 1))))
        any_full = gaussian.Moments(vector(SIZE), Full(covariance(SIZE)))
        u = jnp.stack([vector(SIZE, seed) for seed in range(4)])
        value = lambda q, p: dict(
            log_prob=q.log_prob(u),
            entropy=q.entropy(),
            log_det=q.log_det(),
            covariance=q.covariance(),
            natural=q.natural(),
            expectation=q.expectation(),
            to_other=q.kl(p),
            from_other=p.kl(q),
            to_diagonal=q.kl(part),
            from_diagonal=part.kl(q),
            to_full=q.kl(any_full),
            from_full=any_full.kl(q),
            covariance_by_factor=q.factor() @ q.factor().mT,
        )
        variances = q.variances(), jnp.diagonal(full.covariance())
        definition = AbstractDistribution
        by_definition = (
            (q.kl(p), definition.kl(q, p)),
            (q.entropy(), definition.entropy(q)),
            (q.log_prob(u), definition.log_prob(q, u)),
            (q.expectation(), jax.grad(q.log_normalizer)(q.natural())),
            variances,
        )
        return value(q, p), value(full, other), by_definition, q.kl(q), q.is_inside()

    found, expected, by_definition, to_itself, is_inside = both(Q, P)
    for name, value in found.items():
        assert_close(value, expected[name]), name
    for one, other in by_definition:
        assert_close(one, other)
    assert abs(to_itself) < 1e-13
    assert is_inside


def test_draws_have_its_moments_and_gradients():
    @jax.jit
    def drawn(q):
        u = q.sample(jax.random.key(1), (DRAWS,))
        by_draws = lambda q: (q.sample(jax.random.key(1), (DRAWS,)) ** 2).mean(0)
        slopes = [
            jax.jacobian(f)(q).factors for f in (by_draws, lambda q: q.variances())
        ]
        return q.statistics(u), q.expectation(), slopes

    statistics, eta, (by_draws, exact) = drawn(Q)
    for terms, expected in zip(statistics, eta, strict=True):
        error = terms.std(0) / np.sqrt(DRAWS)
        assert (jnp.abs(terms.mean(0) - expected) <= 5 * error).all()
    # Reparameterized: the mean square moves with B as the variance does.
    np.testing.assert_allclose(by_draws, exact, atol=0.05 * jnp.abs(exact).max())


@pytest.mark.parametrize("name", variants(STORAGES, list(STORAGES)[:1]))
def test_natural_gradient_is_the_inverse_fisher_matrix_times_the_gradient(name):
    found = at(name)
    fisher = np.asarray(found["jacobian"].T @ found["curvature"] @ found["jacobian"])
    # A change that turns B is a direction without length.
    inverse = np.linalg.pinv(fisher, rcond=1e-11, hermitian=True)
    expected = found["jacobian"] @ (inverse @ found["grad"])
    assert_close(found["jacobian"] @ found["direction"], expected, rtol=1e-8)


def test_natural_gradient_does_not_turn_the_factors():
    q = STORAGES["Log"]
    change = at("Log")["direction"][-SIZE * RANK :].reshape((SIZE, RANK))
    turned = (q.covariance() @ q.factors).T @ change
    assert_close(turned, turned.T, rtol=1e-8)


@pytest.mark.parametrize("name", list(STORAGES)[1:])
def test_natural_gradients_in_all_coordinates_are_one_tangent_vector(name):
    pushed = [at(each)["jacobian"] @ at(each)["direction"] for each in ("Log", name)]
    assert_close(*pushed, rtol=1e-8)


def test_without_factors_the_step_is_that_of_a_diagonal_gaussian():
    zero = jnp.zeros_like(Q.factors)
    q = low_rank.MeanPrecision(Q.mean, Q.diagonal, zero)
    same = diagonal.Moments(Q.mean, Log(-Q.diagonal.log))
    target = diagonal.Moments(vector(SIZE, 3), Plain(jnp.exp(vector(SIZE, 4))))

    @jax.jit
    def steps(q, same):
        loss = lambda q: jnp.sin(q.kl(target)) + q.kl(target)
        path = lambda q: q.path(jax.grad(loss)(q))(jnp.asarray(0.3))
        there, other = path(q), path(same)
        return there, other.location(), other.variances(), there.variances()

    there, mean, variances, of_low_rank = steps(q, same)
    assert_close(there.mean, mean)
    assert_close(of_low_rank, variances)
    assert (there.factors == 0).all()


@functools.cache
def descent():
    """A compiled guarded step on KL(q ‖ target)."""
    tx = natgrad.guarded_ngd()

    @jax.jit
    def step(q, state, target):
        loss = lambda q: q.kl(target)
        value, grad = jax.value_and_grad(loss)(q)
        seen = {"value": value, "grad": grad, "value_fn": loss}
        updates, state = tx.update(grad, state, q, **seen)
        return optax.apply_updates(q, updates), state, value

    return tx.init, step


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_guarded_steps_reach_a_target_of_the_family_and_never_rise(scale):
    q = made(scale=scale)
    init, step = descent()
    state, values = init(q), []
    for _ in range(25):
        q, state, value = step(q, state, P)
        values.append(value)
    assert np.diff(values).max() <= 1e-12
    assert values[0] > 1 and abs(values[-1]) < 1e-10
    assert_close(q.natural(), P.natural(), rtol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "tx",
    [
        natgrad.ngd(0.1),
        natgrad.mirror_descent(0.1),
        optax.chain(natgrad.ngd(20.0), natgrad.stay_inside()),
        natgrad.split(natgrad.ngd(0.1), optax.sgd(0.1)),
    ],
    ids=["ngd", "mirror", "inside", "split"],
)
def test_other_optimizers_move_it_and_keep_it_inside(tx):
    params = {"q": Q, "scale": jnp.ones(())}
    loss = lambda params: params["q"].kl(P) + params["scale"] ** 2

    @jax.jit
    def step(params):
        updates, _ = tx.update(jax.grad(loss)(params), tx.init(params), params)
        there = optax.apply_updates(params, updates)
        return there["q"].is_inside(), loss(there) - loss(params), there["q"].kl(Q)

    is_inside, change, moved = step(params)
    assert is_inside
    assert moved > 1e-4
    assert change < 0 or moved > 1  # a step of size 20 is far too long


@pytest.mark.nightly
def test_leading_axes_are_batches():
    both = made(batch=(3, 2))
    one = jax.tree.map(lambda x: x[2, 1], both)

    @jax.jit
    def computed(q):
        p = low_rank.MeanPrecision(-q.mean, q.diagonal, 2 * q.factors)
        grad = jax.grad(lambda q: jnp.sum(q.kl(p) + jnp.sin(q.entropy())))(q)
        there = q.path(grad)(jnp.asarray(0.1))
        found = natgrad.natural_gradient(q, grad), there
        return *found, q.entropy(), q.variances(), q.is_inside()

    with jax.numpy_rank_promotion("raise"):
        together, alone = computed(both), computed(one)
        for many, single in zip(together, alone, strict=True):
            of_one = jax.tree.map(lambda x: x[2, 1], many)
            assert_close(of_one, single, rtol=1e-8)
        draws = both.sample(jax.random.key(0), (4,))
        assert draws.shape == (4, 3, 2, SIZE)
        log_prob = both.log_prob(draws)
        assert_close(log_prob[:, 2, 1], one.log_prob(draws[:, 2, 1]))


def shapes(function, *args) -> list[list[int]]:
    """The shapes of all arrays of a program, with those in its loops."""
    text = jax.jit(function).lower(*args).as_text()
    found = re.findall(r"tensor<((?:\d+x)+)", text)
    return [[int(part) for part in each.split("x")[:-1]] for each in found]


def test_no_matrix_of_all_numbers_is_formed():
    size = 40
    q, prior = made(size, 3), diagonal.Moments(jnp.zeros(size), Log(jnp.zeros(size)))

    def used(q, key):
        value = lambda q: (
            q.kl(prior)
            + q.entropy()
            + q.log_prob(q.sample(key, (2,))).sum()
            + q.variances().sum()
        )
        grad = jax.grad(value)(q)
        there = q.trials(grad)(jnp.asarray(0.1))
        return natgrad.natural_gradient(q, grad), there, q.is_inside()

    numbers = [math.prod(shape) for shape in shapes(used, q, jax.random.key(0))]
    assert size * 3 <= max(numbers) <= size * 3 * 2
    assert [size, size] in shapes(lambda q: q.covariance(), q)


def test_outside_is_not_inside():
    for spoiled in (
        jax.tree.map(lambda x: x * jnp.nan, Q),
        low_rank.MeanPrecision(Q.mean, Plain(-jnp.ones(SIZE)), Q.factors),
    ):
        assert not spoiled.is_inside()
    grad = jax.tree.map(lambda x: x.at[0].set(jnp.nan), Q)
    assert not jnp.isfinite(flat(natgrad.natural_gradient(Q, grad))).all()


def test_what_only_an_exponential_family_has_is_refused():
    with pytest.raises(InputError, match="no exponential family, and most natural"):
        Q.at_natural(Q.natural())
    with pytest.raises(InputError, match="no exponential family, and most expectation"):
        Q.at_expectation(Q.expectation())
    theta, size = Q.natural(), jnp.asarray(0.1)
    for raises in (
        lambda: Q.slope(Q),
        lambda: Q.direction(theta),
        lambda: Q.stepped(theta, size),
        lambda: natgrad.natural_gradient(Q, theta),
    ):
        with pytest.raises(InputError, match="no exponential family"):
            raises()
    with pytest.raises(InputError, match="both should be Gaussian"):
        Q.kl(gamma.ShapeRate(Plain(jnp.ones(2)), Plain(jnp.ones(2))))
