"""Laws of the guarded step."""

import functools
import math
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import natgrad
from natgrad import linalg, positive
from natgrad._guarded import FLOOR, HALVINGS, MARGIN, SHARE, UNTESTED, WEIGHT
from natgrad.families import (
    beta,
    categorical,
    diagonal,
    dirichlet,
    gamma,
    gaussian,
    inverse_gamma,
    normal_inverse_wishart,
    wishart,
)
from natgrad.linalg import _triangular as triangular
from tests.variants import variants


TX: Any = natgrad.guarded_ngd()
EXPERIMENTS = Path(__file__).parents[1] / "experiments"
small_gp = SimpleNamespace(**runpy.run_path(str(EXPERIMENTS / "small_gp.py")))


def assert_close(a, b, rtol=1e-10, atol=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, atol), a, b)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def step(tx, value_fn, params, state) -> tuple[Any, Any]:
    value, grads = jax.value_and_grad(value_fn)(params)
    updates, state = optax.with_extra_args_support(tx).update(
        grads, state, params, value=value, grad=grads, value_fn=value_fn
    )
    return optax.apply_updates(params, updates), state


def descend(tx, loss, params, batches):
    """Steps on one batch after the other; the states and the parameters of each."""

    def body(carry, batch):
        carry = step(tx, lambda params: loss(params, batch), *carry)
        return carry, carry

    return jax.lax.scan(body, (params, tx.init(params)), batches)[1]


def repeat(tx, loss, params, steps):
    return descend(tx, lambda q, _: loss(q), params, jnp.arange(steps))


def last(tree):
    return jax.tree.map(lambda leaf: leaf[-1], tree)


def gaussian_at(mean, scale) -> Any:
    """N(mean, scale² I) in three dimensions."""
    root = scale * jnp.eye(3)
    return gaussian.Moments(jnp.full(3, float(mean)), linalg.Sqrt(root))


# A small sparse GP. Both stress sets are those of experiments/guarded.py, made smaller.


@functools.cache
def small_set(name, seed, inducing):
    raw = getattr(small_gp, name)()
    x, y, centres = small_gp.split(*raw, seed, inducing, name == "outliers")
    return small_gp.rows_of(
        jnp.asarray(x), jnp.asarray(y), jnp.asarray(centres), math.sqrt(x.shape[1]), 2.0
    )


def gp_loss(name, scale, num_data):
    likelihood = small_gp.LIKELIHOODS[name]

    def loss(q, rows):
        return small_gp.loss(q, rows, likelihood, jnp.asarray(scale), num_data)

    return loss


COORDINATES = [
    (side, storage)
    for side in ("moments", "canonical")
    for storage in ("full", "sqrt", "log")
]
VARIANCE = 0.3


def in_coordinates(mean, cov, side, storage):
    """N(mean, cov) in one of the six coordinate systems."""
    eye = triangular.eye_like(cov)
    store = {
        "full": linalg.Full(eye),
        "sqrt": linalg.Sqrt(eye),
        "log": linalg.Log(jnp.zeros_like(eye)),
    }[storage]
    if side == "moments":
        return gaussian.Moments(mean, store.at(cov))
    precision = jnp.linalg.inv(cov)
    linear = triangular.matvec(precision, mean)
    return gaussian.Canonical(linear, store.at(precision / 2))


def six_starts(mean, cov) -> list[Any]:
    return [in_coordinates(mean, cov, *pair) for pair in COORDINATES]


def toy_rows(num_data=40, inducing=5):
    rng = np.random.default_rng(3)
    features = jnp.asarray(rng.standard_normal((num_data, inducing)))
    y = jnp.asarray(features @ rng.standard_normal(inducing))
    y += jnp.asarray(rng.standard_t(3, num_data))
    return small_gp.Rows(features, jnp.full(num_data, 0.1), y)


@functools.cache
def six_steps():
    """A compiled step and a start for each of the six; one loss is conjugate."""
    rows = toy_rows()
    conjugate = gp_loss("Gaussian", math.sqrt(VARIANCE), len(rows.y))
    other = gp_loss("Student-t", 0.1, len(rows.y))

    @jax.jit
    def advance(q, state, is_conjugate):
        choose = lambda q: jnp.where(is_conjugate, conjugate(q, rows), other(q, rows))
        q, state = step(TX, choose, q, state)
        return q, state, (q.location(), q.covariance(), state.step_size)

    size = rows.features.shape[-1]
    starts = six_starts(jnp.full((1, size), 0.1), 2 * jnp.eye(size)[None])
    return advance, [(q, TX.init(q)) for q in starts]


@pytest.mark.nightly
def test_one_step_of_size_one_solves_a_conjugate_model_in_all_coordinates():
    rows = toy_rows()
    precision = jnp.eye(5) + rows.features.T @ rows.features / VARIANCE
    cov = jnp.linalg.inv(precision)
    mean = cov @ (rows.features.T @ rows.y) / VARIANCE
    advance, starts = six_steps()
    for q, state in starts:
        _, state, there = advance(q, state, True)
        assert_close(there, (mean[None], cov[None], 1.0))
        assert (state.step_size, state.halvings) == (1, 0)


def test_the_path_of_distributions_is_the_same_in_all_coordinates():
    advance, starts = six_steps()
    paths = []
    for q, state in starts:
        path = []
        for _ in range(5):
            q, state, there = advance(q, state, False)
            path.append(there)
        paths.append(path)
    assert paths[0][0][2] < 1  # It is not the conjugate case.
    for path in paths[1:]:
        assert_close(path, paths[0], rtol=1e-6, atol=1e-9)


STRESS = {"outliers": ("Student-t", 0.05, 1), "three_classes": ("robust-max", 1.0, 3)}


@pytest.mark.parametrize("name", variants(STRESS, ["outliers"]))
def test_no_split_fails_where_a_constant_step_fails(name):
    likelihood, scale, latents = STRESS[name]
    inducing, num_rows, steps = 40, 128, 40
    num_data = len(small_set(name, 0, inducing).y)
    loss = gp_loss(likelihood, scale, num_data)

    def run(tx):
        def at(q, rows, batches):
            on_batch = lambda q, batch: loss(q, jax.tree.map(lambda x: x[batch], rows))
            return last(descend(tx, on_batch, q, batches)[0])

        return jax.jit(at)

    guarded, plain = run(TX), run(natgrad.ngd(0.1))
    whole = lambda q, rows: repeat(TX, lambda q: loss(q, rows), q, 20)[0]
    full = jax.jit(lambda q, rows: loss(last(whole(q, rows)), rows))
    judge = jax.jit(lambda q, rows: (loss(q, rows), q.is_inside().all()))
    failures = {"guarded": 0, "plain": 0}
    for seed in range(5):
        rows = small_set(name, seed, inducing)
        best = full(small_gp.prior(latents, inducing), rows)
        batches = jnp.asarray(small_gp.minibatches(num_data, num_rows, steps, seed))
        ends = {
            "guarded": guarded(small_gp.prior(latents, inducing), rows, batches),
            "plain": plain(small_gp.prior_in_theta(latents, inducing), rows, batches),
        }
        for rule, q in ends.items():
            value, is_inside = judge(q, rows)
            failures[rule] += not (is_inside and (value - best) / num_data < 1)
    assert failures["guarded"] == 0
    assert failures["plain"] > 0


def test_a_loss_without_noise_never_rises():
    rows = jax.tree.map(lambda x: x[:200], small_set("three_classes", 0, 40))
    loss = gp_loss("robust-max", 1.0, len(rows.y))
    run = lambda q: repeat(natgrad.guarded_ngd(), lambda q: loss(q, rows), q, 60)
    qs, states = jax.jit(run)(small_gp.prior(3, 40))
    values = jax.vmap(lambda q: loss(q, rows))(qs)
    assert (jnp.diff(values) <= 1e-10 * values[:-1]).all()
    assert not states.is_noisy.any()


# Never outside. One compiled step serves all laws about Gaussians.


START = gaussian_at(0.0, 1.0)
TARGET = gaussian_at(2.0, 0.3)


@functools.partial(jax.jit, static_argnames="fraction")
def advance(q, state, target, fraction=None):
    return step(natgrad.guarded_ngd(fraction), lambda q: q.kl(target), q, state)


@jax.jit
def answered(state, grad, answer, share):
    """A step on a loss that is share · KL + answer, but for where q starts."""
    value_fn = lambda q: share * q.kl(TARGET) + answer
    updates, state = TX.update(
        grad, state, START, value=START.kl(TARGET), grad=grad, value_fn=value_fn
    )
    return optax.apply_updates(START, updates), state


def slope_at_start():
    return jax.grad(lambda q: q.kl(TARGET))(START)


@pytest.mark.parametrize("answer", [jnp.nan, jnp.inf])
def test_a_loss_that_is_never_finite_leaves_q_as_it_was(answer):
    q, state = answered(TX.init(START), slope_at_start(), answer, 0.0)
    assert_equal(q, START)
    assert state.refused == 1
    assert state.step_size == 0
    assert 0 < state.halvings <= HALVINGS + 1
    assert 0 < state.tests <= state.halvings


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_a_gradient_that_is_not_finite_leaves_q_as_it_was(bad):
    grad = slope_at_start()
    grads = [
        gaussian.Moments(grad.mean.at[1].set(bad), grad.cov),
        gaussian.Moments(grad.mean, linalg.Sqrt(grad.cov.root.at[2, 0].set(bad))),
    ]
    for grad in grads:
        q, state = answered(TX.init(START), grad, 0.0, 1.0)
        assert_equal(q, START)
        assert (state.refused, state.tests, state.step_size) == (1, 0, 0)


def test_a_start_where_the_loss_is_not_finite_is_left_as_it_was():
    q, state = advance(START, TX.init(START), gaussian_at(jnp.nan, 1.0))
    assert_equal(q, START)
    assert (state.refused, state.tests) == (1, 0)


def test_a_loss_that_rises_in_the_direction_of_the_step_is_not_followed():
    wrong = jax.tree.map(jnp.negative, slope_at_start())
    state = TX.init(START)
    for refused in (1, 2):
        q, state = answered(state, wrong, 0.0, 1.0)
        assert_equal(q, START)
        assert state.refused == refused
        assert state.tests > 0


def test_it_recovers_after_a_refusal():
    _, state = answered(TX.init(START), slope_at_start(), jnp.nan, 0.0)
    q, state = advance(START, state, TARGET)
    assert_close(q.location(), TARGET.location())
    assert_close(q.covariance(), TARGET.covariance())
    assert (state.refused, state.step_size, state.steps) == (1, 1, 2)


# What is counted


def test_a_step_is_taken_exactly_where_the_test_says():
    """The sizes tried are walked by hand."""
    rows = toy_rows()
    loss = jax.jit(lambda q: gp_loss("Student-t", 0.05, len(rows.y))(q, rows))
    q = small_gp.prior(1, rows.features.shape[-1])
    value, grad = jax.value_and_grad(loss)(q)
    slope = q.slope(grad)
    passed, tests, best = [], 0, math.inf
    for halving in range(HALVINGS + 1):
        size = 0.5**halving
        there = q.stepped(slope, jnp.asarray(size))
        if not there.is_inside().all():
            continue
        tests += 1
        value_there = loss(there)
        if passed and value_there >= best:
            break
        if value - value_there >= SHARE / size * q.kl(there).sum():
            passed.append(halving)
            best = value_there
    moved, state = jax.jit(lambda q: step(TX, loss, q, TX.init(q)))(q)
    assert passed[-1] > 0
    assert state.halvings == passed[-1]
    assert state.step_size == 0.5 ** passed[-1]
    assert state.tests == tests
    assert (state.refused, state.steps) == (0, 1)
    assert_close(state.value, loss(moved))


@pytest.mark.parametrize("part", [0.99, 1.01])
def test_the_loss_must_fall_by_a_share_of_the_divergence_from_start_to_end(part):
    fall = START.kl(TARGET)  # a step of size 1 ends there
    assert abs(fall - TARGET.kl(START)) > 0.1 * fall
    answer = fall - part * SHARE * fall
    _, state = answered(TX.init(START), slope_at_start(), answer, 0.0)
    assert (state.step_size == 1) == (part > 1)


def test_a_short_step_on_a_noisy_loss_is_not_tested():
    near, far = gaussian_at(0.1, 1.0), gaussian_at(10.0, 1.0)
    assert near.kl(START) < UNTESTED < far.kl(START)
    for target, tests in ((near, 0), (far, 1)):
        _, state = advance(START, TX.init(START), target, fraction=0.5)
        assert state.tests == tests  # A conjugate loss keeps its promise: no half.


@pytest.mark.parametrize("is_noisy", [False, True])
def test_a_step_on_a_noisy_loss_keeps_from_the_edge_of_the_family(is_noisy):
    # A precision of 1 that falls by 10 γ: from 0.1 on it is outside.
    loss = lambda q: -5.0 * (q.covariance().trace() + (q.location() ** 2).sum())
    tx = natgrad.guarded_ngd(0.5 if is_noisy else 1.0)
    q = gaussian_at(0.0, 1.0)
    moved, state = jax.jit(lambda q: step(tx, loss, q, tx.init(q)))(q)
    edge = 1 / 8
    assert state.step_size == (edge / MARGIN if is_noisy else edge / 2)
    assert moved.is_inside()
    path = q.path(jax.grad(loss)(q))
    assert not path(jnp.asarray(edge)).is_inside()
    if is_noisy:
        assert path(MARGIN / 2 * state.step_size).is_inside()


def test_nothing_is_tested_at_the_minimum():
    q, state = TARGET, TX.init(TARGET)
    for _ in range(3):
        q, state = advance(q, state, TARGET)
    assert (state.tests, state.refused, state.is_noisy) == (0, 0, False)
    assert_close(q, TARGET)


# Noise


TARGETS = [gaussian_at(2.0, 0.3), gaussian_at(1.9, 0.3), gaussian_at(2.1, 0.3)]


def states_on(batches, fraction=None):
    q, state, states = START, TX.init(START), []
    for batch in batches:
        q, state = advance(q, state, TARGETS[batch], fraction=fraction)
        states.append(state)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


def test_a_loss_without_noise_is_always_tried_at_one():
    state = states_on([0] * 20)
    assert not state.is_noisy.any()
    assert (state.step_size == 1).all()


def test_steps_on_changing_batches_are_averages():
    steps = np.arange(40)
    state = states_on(steps % 3)
    assert not state.is_noisy[0]
    assert state.is_noisy[1:].all()
    assert_close(state.step_size, WEIGHT / (WEIGHT + steps))
    assert not state.is_joint.any()


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_the_fraction_of_a_batch_slows_the_decay(fraction):
    steps = np.arange(20)
    state = states_on(0 * steps, fraction)
    assert_close(state.step_size, WEIGHT / (WEIGHT + (1 - fraction) * steps))


@pytest.mark.parametrize("fraction", [None, 0.01, 0.05, 0.5])
def test_steps_stay_above_a_floor_while_hyperparameters_move(fraction):
    params = {"q": START, "log_scale": jnp.zeros(())}
    tx: Any = natgrad.split(natgrad.guarded_ngd(fraction), optax.sgd(0.01))
    state, steps, sizes = tx.init(params), np.arange(100), []

    @jax.jit
    def advance(params, state, target):
        loss = lambda p: p["q"].kl(target) + (p["log_scale"] - 1) ** 2
        return step(tx, loss, params, state)

    for batch in steps % 3:
        params, state = advance(params, state, TARGETS[batch])
        sizes.append(state.distributions.step_size)
    assert state.distributions.is_joint
    part = fraction or 0.0
    decaying = WEIGHT / (WEIGHT + (1 - part) * steps)
    assert_close(np.stack(sizes), np.maximum(decaying, np.clip(part, *FLOOR)))


# Every family


def log(*values):
    return positive.Log(jnp.log(jnp.asarray(values[0] if len(values) == 1 else values)))


def plain(*values):
    return positive.Plain(jnp.asarray(values[0] if len(values) == 1 else values))


SPREAD = jnp.asarray([[2.0, 0.3], [0.3, 0.5]])
PAIRS: dict[str, tuple[Any, Any]] = {
    "gamma": (
        gamma.ShapeRate(log(2.0), log(0.7)),
        gamma.ShapeRate(log(30.0), log(9.0)),
    ),
    "gamma mean": (
        gamma.MeanShape(plain(1.0), plain(0.6)),
        gamma.MeanShape(plain(5.0), plain(40.0)),
    ),
    "beta": (
        beta.Concentrations(log(1.0), log(1.5)),
        beta.Concentrations(log(20.0), log(3.0)),
    ),
    "Dirichlet": (
        dirichlet.Concentrations(log(1.0, 1.0, 1.0)),
        dirichlet.Concentrations(log(9.0, 0.5, 20.0)),
    ),
    "categorical": (
        categorical.Logits(jnp.zeros(3)),
        categorical.Logits(jnp.asarray([3.0, -2.0, 1.0])),
    ),
    "categorical probabilities": (
        categorical.Probabilities(jnp.asarray([0.25, 0.25])),
        categorical.Probabilities(jnp.asarray([0.9, 0.01])),
    ),
    "Wishart": (
        wishart.ScaleDof(linalg.Sqrt(jnp.eye(2)), log(2.0)),
        wishart.ScaleDof(linalg.Sqrt(jnp.linalg.cholesky(SPREAD)), log(30.0)),
    ),
    "inverse gamma": (
        inverse_gamma.ShapeScale(log(2.0), log(0.7)),
        inverse_gamma.ShapeScale(log(30.0), log(9.0)),
    ),
    "normal-inverse-Wishart": (
        normal_inverse_wishart.MeanPrecision(
            jnp.zeros(2), log(0.5), wishart.RateDof(linalg.Sqrt(jnp.eye(2)), log(2.0))
        ),
        normal_inverse_wishart.MeanPrecision(
            jnp.asarray([3.0, -2.0]),
            log(20.0),
            wishart.RateDof(linalg.Sqrt(jnp.linalg.cholesky(SPREAD)), log(30.0)),
        ),
    ),
    "diagonal": (
        diagonal.Moments(jnp.zeros(3), log(1.0, 1.0, 1.0)),
        diagonal.Moments(jnp.asarray([3.0, -2.0, 0.0]), log(0.1, 2.0, 1.0)),
    ),
    "diagonal canonical": (
        diagonal.Canonical(jnp.zeros(2), plain(0.5, 0.5)),
        diagonal.Canonical(jnp.asarray([30.0, 0.1]), plain(5.0, 0.1)),
    ),
}


# The rest are the same families in other coordinates, or as these.
in_families = pytest.mark.parametrize(
    "name", variants(PAIRS, ["beta", "categorical", "Wishart", "diagonal"])
)


@functools.cache
def family_step(name):
    """A compiled step on KL(q ‖ target) or KL(target ‖ q), and the loss before it."""
    target = PAIRS[name][1]
    loss = lambda q, is_reverse: jnp.where(is_reverse, target.kl(q), q.kl(target))

    @jax.jit
    def advance(q, state, is_reverse):
        before = loss(q, is_reverse)
        q, state = step(TX, lambda q: loss(q, is_reverse), q, state)
        return q, state, before, q.is_inside().all()

    return advance


@in_families
def test_one_step_of_size_one_reaches_a_target_in_any_family(name):
    q, target = PAIRS[name]
    q, state, _, _ = family_step(name)(q, TX.init(q), False)
    assert_close(q.natural(), target.natural(), rtol=1e-8, atol=1e-8)
    assert (state.step_size, state.refused) == (1, 0)


@in_families
def test_the_reverse_divergence_falls_and_q_stays_inside_in_any_family(name):
    q, _ = PAIRS[name]
    state, values = TX.init(q), []
    for _ in range(15):
        q, state, value, is_inside = family_step(name)(q, state, True)
        values.append(value)
        assert is_inside
    assert np.diff(np.stack(values)).max() <= 1e-12
    assert values[-1] < 0.01 * values[0]
    assert not state.is_noisy


# Trees and transformations


def forest():
    return {
        "weights": START,
        "precision": gamma.ShapeRate(log(2.0), log(0.7)),
        "log_scale": jnp.zeros(2),
    }


def forest_loss(tree):
    target = gamma.ShapeRate(log(30.0), log(9.0))
    rest = ((tree["log_scale"] - 1) ** 2).sum()
    return target.kl(tree["precision"]) + TARGET.kl(tree["weights"]) + rest


def test_all_distributions_of_a_tree_take_one_step():
    tree, tx = forest(), natgrad.guarded_ngd()
    moved, state = jax.jit(lambda tree: step(tx, forest_loss, tree, tx.init(tree)))(
        tree
    )
    grads = jax.grad(forest_loss)(tree)
    for name in ("weights", "precision"):
        q, there = tree[name], moved[name]
        expected = q.stepped(q.slope(grads[name]), state.step_size)
        assert_close(there, expected)
    assert_equal(moved["log_scale"], tree["log_scale"])
    assert state.refused == 0


def test_hyperparameters_take_their_own_step_beside():
    tree = forest()
    tx = natgrad.split(natgrad.guarded_ngd(), optax.sgd(0.1))
    alone = natgrad.guarded_ngd()
    moved, _ = jax.jit(lambda t: step(tx, forest_loss, t, tx.init(t)))(tree)
    expected, _ = jax.jit(lambda t: step(alone, forest_loss, t, alone.init(t)))(tree)
    assert_close(moved["weights"], expected["weights"])
    assert_close(moved["log_scale"], jnp.full(2, 0.2))


def test_many_problems_at_once_are_each_solved_as_alone():
    means = jnp.asarray([0.0, 5.0, 300.0])
    loss = lambda q: gaussian_at(1.0, 1.0).kl(q)

    def run(mean):
        q = gaussian.Moments(jnp.full(3, mean), linalg.Sqrt(jnp.eye(3)))
        return last(repeat(natgrad.guarded_ngd(), loss, q, 4))

    together = jax.jit(jax.vmap(run))(means)
    for i, mean in enumerate(means):
        alone = jax.jit(run)(mean)
        assert_close(jax.tree.map(lambda x, i=i: x[i], together), alone)


def test_float32_stays_float32_and_its_rounding_is_not_noise():
    narrow = lambda tree: jax.tree.map(lambda x: x.astype(jnp.float32), tree)
    rows = narrow(toy_rows())
    likelihood = small_gp.LIKELIHOODS["Gaussian"]

    def loss(q):
        scale, zero = jnp.full((), 0.5, jnp.float32), narrow(small_gp.prior(1, 5))
        mean = q.location() @ rows.features.T
        var = rows.rest[None, :] + ((rows.features[None] @ q.factor()) ** 2).sum(-1)
        fit = likelihood(mean, var, rows.y, scale)
        return q.kl(zero).sum() - 100 * fit.sum()

    qs, state = jax.jit(lambda q: repeat(natgrad.guarded_ngd(), loss, q, 10))(
        narrow(small_gp.prior(1, 5))
    )
    assert {leaf.dtype.name for leaf in jax.tree.leaves(qs)} == {"float32"}
    assert state.step_size[0] == 1
    assert not state.is_noisy.any()
    assert (state.refused == 0).all()


def test_it_says_how_it_is_called():
    tx = natgrad.guarded_ngd()
    with pytest.raises(ValueError, match="value_fn being the loss on the same batch"):
        tx.update(START, tx.init(START), START)
