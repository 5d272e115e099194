"""When a run on batches slows down: laws of the plan, on losses that are known."""

import itertools

import jax
import numpy as np
import pytest

from natgrad.train import _schedule as schedule
from natgrad.train._schedule import COOLING, FEWEST, RISE, SPAN, first_plan, planned


ROWS = 1000.0
MOST = 20_000

planned = jax.jit(planned)


def begin(losses_per_row, most=MOST):
    """After how many steps the rate falls; infinity if it does not."""

    def take(plan, given):
        step, loss = given
        return planned(plan, step, loss, ROWS), None

    losses = np.asarray(list(itertools.islice(losses_per_row, most))) * ROWS
    plan, _ = jax.lax.scan(take, first_plan(), (np.arange(len(losses)), losses))
    assert np.isinf(plan.begin) or plan.end == np.ceil(plan.begin * (1 + COOLING))
    return float(plan.begin)


def test_a_loss_that_does_not_fall_ends_the_plateau_at_the_first_test():
    assert begin(itertools.repeat(1.0)) == SPAN * FEWEST
    assert begin(itertools.count(0.0, 1e-3)) == SPAN * FEWEST


def test_a_falling_loss_keeps_the_rate():
    # A quarter of t steps gains what it must: 4 RISE/t in each step, and a bit more.
    falling = (-1.3 * 4 * RISE * np.log(1 + step) for step in itertools.count())
    assert begin(falling) == np.inf
    settles = (3 * np.exp(-step / 500) for step in itertools.count())
    at = begin(settles)
    # The next quarter would gain little.
    assert 3 * np.exp(-at / 500) < RISE
    assert at < MOST


@pytest.mark.parametrize("noise", [0.01, 0.06, 0.3])
def test_noise_is_no_reason_to_stop(noise):
    """Of 20 runs that still gain twice what they must, at most a fifth stop early."""
    early = 0
    for seed in range(20):
        draw = np.random.default_rng(seed)
        gained = 2 * 4 * RISE * np.log(1 + np.arange(3000))
        early += begin(noise * draw.normal(size=3000) - gained) < 3000
    assert early <= 4


def test_a_level_loss_is_seen_through_noise():
    draw = np.random.default_rng(0)
    assert begin(0.06 * draw.normal(size=MOST)) < MOST


def test_averages_are_those_of_all_steps_so_far():
    losses = np.random.default_rng(0).normal(size=SPAN * (schedule.SLOTS + 40))
    plan = first_plan()
    for step, loss in enumerate(losses):
        plan = planned(plan, np.asarray(step), loss, ROWS)
    assert (plan.span, plan.number) == (2 * SPAN, schedule.SLOTS // 2 + 20)
    expected = losses.reshape(-1, 2 * SPAN).mean(1)
    np.testing.assert_allclose(plan.averages[: len(expected)], expected, atol=1e-12)
