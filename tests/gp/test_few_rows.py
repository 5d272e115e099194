"""Laws of the prior for few rows, and of the distribution that any fit should beat."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import t as student_t

from natgrad.data import Batch
from natgrad.gp import kernels, likelihoods
from natgrad.gp._baseline import DOF, has_heavy_tails, student_t_score, worse
from natgrad.gp._few_rows import FADED, LEAST, NOISE, few, misfit, misfit_of_sample


RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 2))
Y = RNG.standard_normal(20)
KERNEL = kernels.Matern52([0.5, 3.0], 4.0)


def cost(kernel, likelihood, x=X, y=Y, weight=None):
    return float(misfit(kernel, likelihood, Batch(x, y, weight)))


@pytest.mark.parametrize(
    "likelihood", [likelihoods.Gaussian, likelihoods.StudentT], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_prior_is_the_same_in_any_unit_of_the_targets(likelihood, unit):
    power = 2 if likelihood is likelihoods.Gaussian else 1
    scaled = kernels.Matern52([0.5, 3.0], 4.0 * unit**2)
    here = cost(KERNEL, likelihood(0.1))
    there = cost(scaled, likelihood(0.1 * unit**power), y=Y * unit)
    assert here > 0.1 and there == pytest.approx(here)


def test_the_prior_costs_nothing_where_it_expects_the_hyperparameters():
    wide = np.std(Y) * _widening(20)
    expected = kernels.Matern52(np.full(2, np.sqrt(2)), wide**2)
    noise = likelihoods.Gaussian((NOISE * wide) ** 2)
    assert cost(expected, noise) == pytest.approx(0, abs=1e-12)
    assert cost(KERNEL, noise) > 0.1
    assert cost(expected + KERNEL, noise) == pytest.approx(cost(KERNEL, noise))


def _widening(rows):
    """By simulation: how far off 95 % of new targets are, in deviations of the old."""
    old = np.random.default_rng(0).standard_normal((100_000, rows + 1))
    gap = np.abs(old[:, -1] - old[:, :-1].mean(1)) / old[:, :-1].std(1)
    # Its error by chance is that of a quantile of 100,000 draws, below 1 %.
    simulated = np.quantile(gap, 0.95) / 1.96
    exact = student_t.ppf(0.975, rows - 1) * np.sqrt((rows + 1) / (rows - 1)) / 1.96
    assert simulated == pytest.approx(exact, rel=0.01)
    return exact


def test_the_prior_fades_with_the_rows_that_count():
    noise = likelihoods.Gaussian(0.1)
    padded = Batch(
        np.concatenate([X, X[:1].repeat(12, 0)]),
        np.concatenate([Y, Y[:1].repeat(12)]),
        np.append(np.ones(20), np.zeros(12)),
    )
    assert cost(KERNEL, noise, *padded[:3]) == pytest.approx(cost(KERNEL, noise))
    for rows in (FADED, FADED + 1):
        x, y = jnp.ones((rows, 2)), jnp.arange(float(rows))
        assert cost(KERNEL, noise, x, y) == 0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_noise_that_vanishes_costs_more_than_rows_that_agree_can_gain(unit):
    y = unit * np.arange(2.0 * FADED)
    least = LEAST * np.std(y)
    weight = np.full(2 * FADED, 3.0)
    batch = Batch(np.ones((2 * FADED, 2)), y, weight)

    def cost(noise):
        return float(misfit(KERNEL, likelihoods.Gaussian(noise**2), batch))

    def cost_of_sample(noise):
        return float(misfit_of_sample(KERNEL, likelihoods.Gaussian(noise**2), batch))

    assert cost(1.01 * least) == 0
    # A row that agrees gains a nat if the noise falls by a factor of e.
    assert cost(least / np.e**2) - cost(least / np.e) > weight.sum()
    slope = cost_of_sample(least / np.e**2) - cost_of_sample(least / np.e)
    assert slope > weight.sum()


@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian, likelihoods.StudentT])
def test_the_noise_of_each_output_has_the_prior_that_it_has_alone(likelihood):
    known = slice(5, None)  # the first rows have no second output
    y = np.stack([Y, np.where(np.arange(20) < 5, np.nan, 2 * Y)], 1)

    def together(first, second):
        noise = [likelihood(first), likelihood(second)]
        mixed = likelihoods.LinearCoregionalization(noise, np.eye(2))
        return cost(KERNEL, mixed, y=y)

    first, second = (cost(KERNEL, likelihood(noise)) for noise in (0.1, 0.7))
    assert together(0.1, 0.3) - together(0.7, 0.3) == pytest.approx(first - second)
    first, second = (
        cost(KERNEL, likelihood(noise), X[known], 2 * Y[known]) for noise in (0.1, 0.7)
    )
    assert together(0.3, 0.1) - together(0.3, 0.7) == pytest.approx(first - second)


def test_a_large_mixing_is_not_expected():
    noise, y = likelihoods.Gaussian(0.1), np.stack([Y, Y], 1)
    mixed = lambda scale: likelihoods.LinearCoregionalization(noise, scale * np.eye(2))
    small, large = (cost(KERNEL, mixed(scale), y=y) for scale in (1.0, 2.0))
    assert large - small == pytest.approx((1 - 20 / FADED) * (8 - 2) / 2)


def test_few_rows_are_warned_of():
    assert few(10) is None and few(80, 8) is None and few(128, 1000) is None
    assert few(1).startswith("there is 1 distinct row,")
    assert "fewer than 10" in few(9) and "fewer than 80" in few(79, 8)


@pytest.mark.parametrize("scale, shift", [(1e-200, 0.0), (1e200, 0.0), (3.0, 1e6)])
def test_the_plain_distribution_moves_with_the_targets(scale, shift):
    moved = student_t_score(scale * Y + shift) + np.log(scale)
    assert moved == pytest.approx(student_t_score(Y), abs=1e-6)


def test_no_other_centre_or_scale_is_better():
    y = np.append(Y, [40.0, -3.0])
    found = student_t_score(y)
    best = student_t.logpdf(y, DOF, *student_t.fit(y, fix_df=DOF)[1:]).mean()
    assert found == pytest.approx(best, abs=1e-6)
    assert student_t_score(Y, np.ones(20)) == pytest.approx(student_t_score(Y))
    twice = student_t_score(np.repeat(Y, 2))
    assert student_t_score(Y, np.full(20, 2.0)) == pytest.approx(twice)


def test_a_fit_below_the_plain_distribution_is_warned_of():
    score = student_t_score(Y)
    assert worse(score, Y) is None
    assert "by 1.0 nats per row" in worse(score - 1, Y)
    assert worse(-1e9, np.full(5, 3.3)) is None  # it has no plain distribution


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-9, 5.0), (1e9, -1e9)])
def test_tails_are_heavy_in_any_unit(scale, shift):
    rng = np.random.default_rng(1)
    normal, heavy = rng.standard_normal(60), rng.standard_t(1.5, 60)
    assert has_heavy_tails(scale * heavy + shift)
    assert not has_heavy_tails(scale * normal + shift)


def test_normal_numbers_seldom_have_heavy_tails():
    rng = np.random.default_rng(2)
    for rows in (15, 60, 200):
        found = [has_heavy_tails(rng.standard_normal(rows)) for _ in range(300)]
        assert sum(found) <= 6
    assert not has_heavy_tails(np.ones(20))
