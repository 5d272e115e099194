"""Laws of the average over the last steps of a run on batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from natgrad import gp
from natgrad.data import Arrays, Batch
from natgrad.gp._fit import default_rule
from natgrad.train import _rules as rules, in_turn
from natgrad.train._rules import PARTS, TRAVEL, AveragedState, averaged
from tests.points import FAMILIES, assert_close, flat
from tests.variants import variants


STEPS = 800
Z = np.linspace(-2, 2, 9)[:, None]
MODEL = gp.SparseGP(gp.kernels.Matern52(1.0), gp.likelihoods.Gaussian(), Z)
BATCHES = np.random.default_rng(0).standard_normal((STEPS, 3))
PLAIN = in_turn(lambda a, batch: jnp.sum((a - batch) ** 2) / 2, optax.sgd(0.2))
"""Batches disagree about the optimum, which is near 0."""


@functools.cache
def places(is_averaged: bool, is_constant: bool) -> np.ndarray:
    """The parameters after each step, from far away."""
    rule = averaged(PLAIN) if is_averaged else PLAIN
    params = jnp.full(3, 5.0)
    parts = np.zeros(STEPS) if is_constant else np.linspace(0, 1, STEPS)

    def step(carry, given):
        batch, part = given
        params, state, _ = rule.step(*carry, batch, progress=part)
        return (params, state), params

    given = (jnp.asarray(BATCHES), jnp.asarray(parts))
    return np.asarray(jax.lax.scan(step, (params, rule.init(params)), given)[1])


@pytest.mark.parametrize("is_constant", [True, False])
def test_it_is_the_weighted_mean_of_the_steps(is_constant):
    mean = np.zeros(3)
    pairs = zip(places(False, is_constant), places(True, is_constant), strict=True)
    for number, (step, ours) in enumerate(pairs):
        rate = 1 if is_constant else (1 - number / (STEPS - 1)) ** 2
        window = max(number - TRAVEL, 0) / PARTS
        mean = mean + (step - mean) / (1 + window * rate)
        assert_close(ours, mean, 1e-9, 1e-12)
    if not is_constant:
        assert_close(ours, step, 1e-12)


def test_at_a_constant_rate_it_is_nearer_to_the_optimum_than_the_steps():
    optimum = BATCHES.mean(0)
    far = [
        np.linalg.norm(places(is_averaged, True)[STEPS // 2 :] - optimum, axis=1).mean()
        for is_averaged in (True, False)
    ]
    assert far[0] < 0.5 * far[1]


def test_a_refused_step_changes_nothing():
    rule, params = averaged(PLAIN), jnp.ones(3)
    params, state, _ = rule.step(params, rule.init(params), jnp.zeros(3))
    same, after, loss = rule.step(params, state, jnp.full(3, jnp.nan))
    assert not jnp.isfinite(loss)
    assert_close(flat(same), flat(params), 0.0)
    assert_close(flat(after), flat(state), 0.0)


def test_without_noise_there_is_nothing_to_average():
    assert isinstance(default_rule(40, 0.5).init(MODEL), AveragedState)
    assert not isinstance(default_rule(40, 1.0).init(MODEL), AveragedState)
    for is_noisy, loss in (
        (True, lambda p, batch, key: p),
        (False, lambda p, batch: p),
    ):
        state = rules.default_rule(loss, jnp.zeros(()), 1.0).init(jnp.zeros(()))
        assert isinstance(state, AveragedState) == is_noisy


@pytest.mark.parametrize("family", variants(FAMILIES, ["gaussian", "dirichlet"]))
def test_between_two_members_of_a_family_is_a_third(family):
    def pairs():
        for q in FAMILIES[family].values():
            for sign in (1.0, -1.0):
                slope = jax.tree.map(lambda leaf, s=sign: jnp.full_like(leaf, s), q)
                other = q.path(slope)(jnp.asarray(0.1))
                half = jax.tree.map(lambda a, b: (a + b) / 2, q, other)
                yield other.is_inside().all(), half.is_inside().all()

    found = np.asarray(jax.jit(lambda: list(pairs()))())
    assert found[:, 0].any()
    assert (found[:, 1] | ~found[:, 0]).all()


def test_at_its_end_a_run_is_where_its_last_step_is():
    random = np.random.default_rng(1)
    x = random.uniform(-2, 2, (300, 1))
    y = np.sin(3 * x[:, 0]) + 0.3 * random.standard_normal(300)
    model = MODEL
    rule = default_rule(300, 0.1)
    batches = jax.tree.map(jnp.asarray, Arrays(Batch(x, y), 30).take(0, STEPS))

    @jax.jit
    def run(model, batches):
        def step(carry, given):
            number, batch = given
            model, state, _ = rule.step(*carry, batch, progress=number / STEPS)
            gap = lambda a, b: jnp.abs(a - b).max()
            gaps = jax.tree.leaves(jax.tree.map(gap, model, state.params))
            return (model, state), jnp.stack(gaps).max()

        numbers = jnp.arange(STEPS, dtype=float)
        return jax.lax.scan(step, (model, rule.init(model)), (numbers, batches))[1]

    with jax.numpy_dtype_promotion("standard"):  # Adam promotes inside Optax
        gaps = np.asarray(run(model, batches))
    assert gaps[STEPS // 2] > 0.01
    assert gaps[-1] < 1e-5
