"""Bands of a fitted posterior hold the truth as often as they say.

A short form of experiments/calibration.py. Limits are the error of the best Gaussian q,
which importance sampling puts below `BIAS`, and 4.5 standard errors more: by the tails
of a normal distribution a right build fails at few in ten thousand seeds, at most.
"""

import functools
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


pytestmark = pytest.mark.nightly


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
calibration = SimpleNamespace(**runpy.run_path(str(EXPERIMENTS / "calibration.py")))

LIKELIHOODS = ("Gaussian", "Bernoulli", "Poisson", "Student-t")
LIKELIHOODS += ("known noise", "binomial", "Weibull", "zero-inflated Poisson")
LIKELIHOODS += ("zero-inflated negative binomial",)
LIKELIHOODS += ("censored Gaussian", "censored Weibull")
SETS, ERRORS = 200, 4.5
BIAS = 0.02  # of shares; of a mean and a square in deviations, four times as much


@functools.cache
def scores(name: str) -> np.ndarray:
    """The truth in deviations from its mean, [sets, points]."""
    problem = calibration.problems()[name]
    z, gain = calibration.scores(problem, SETS, seed=LIKELIHOODS.index(name))
    assert gain.max() < 1e-6  # or it is not the best q
    return z


def failures(z: np.ndarray) -> list[str]:
    """The statistics that are further off than chance explains."""
    failed = []
    for name, values in (calibration.statistics(z) | {"mean": z}).items():
        expected = calibration.EXPECTED.get(name, 0)
        share, error = calibration.by_set(values)
        if values.dtype == bool:  # few are beyond a wide band, or none
            error = max(error, (expected * (1 - expected) / z.size) ** 0.5)
        bias = BIAS if values.dtype == bool else 4 * BIAS
        if abs(share - expected) > ERRORS * error + bias:
            failed.append(name)
    return failed


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_bands_hold_the_truth_as_often_as_they_say(name):
    assert not failures(scores(name))


def test_all_bands_together_hold_it_and_those_of_a_wrong_posterior_do_not():
    z = np.concatenate([scores(name) for name in LIKELIHOODS])
    assert not failures(z)
    for spoil in calibration.PLANTED.values():
        assert failures(spoil(z))
