"""Distribution functions and quantiles of targets, as fast as SciPy has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from natgrad.gp import likelihoods
from natgrad.gp.prediction import Predictor, checked_levels


Given = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]

CHUNK = 4096
"""How many rows are looked at together."""

LOOKS, NEAR = 50, 1e-10
"""How often the distribution function is looked at for a quantile, and when it is it:
so near in standard deviations of a normal variable."""


def cdf(predictor: Predictor, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The probability of at most each target."""
    likelihood: Any = predictor.model.likelihood
    if type(likelihood) not in GIVEN:
        return predictor.cdf(x, y)
    return _averaged(likelihood, predictor.latent(x), y)


def quantiles(predictor: Predictor, x: np.ndarray, levels: Any) -> np.ndarray:
    """What targets do not exceed with given probabilities, [N, levels]."""
    likelihood: Any = predictor.model.likelihood
    if type(likelihood) not in GIVEN:
        return predictor.quantiles(x, levels)
    levels = checked_levels(levels)
    repeat = lambda column: np.repeat(column, len(levels), axis=0)
    latent = tuple(map(repeat, predictor.latent(x)))
    mean, var = map(repeat, predictor.predict(x))
    aims, deviation = np.tile(levels, len(x)), np.sqrt(var)
    place = lambda y: _averaged(likelihood, latent, y)
    if likelihood.support == "count":
        found = _count(place, aims, mean + 3 * deviation)
    elif likelihood.support == "positive":
        square = np.log1p((deviation / mean) ** 2)
        begin = np.log(mean) - square / 2, np.sqrt(square)
        found = np.exp(_root(lambda t: place(np.exp(t)), aims, *begin))
    else:
        begin = special.logit(mean), deviation / (mean * (1 - mean))
        found = special.expit(_root(lambda t: place(special.expit(t)), aims, *begin))
    return found.reshape(len(x), len(levels))


def _averaged(
    likelihood: Any, latent: tuple[np.ndarray, ...], y: np.ndarray
) -> np.ndarray:
    """The probability of at most each target, over q of the latent function."""
    mean, var = latent
    points, log_weights = likelihood.predictive_rule()
    is_seen = log_weights > np.log(1e-18)
    points, weights = points[is_seen], np.exp(log_weights[is_seen])
    given, found = GIVEN[type(likelihood)], []
    for start in range(0, len(y), CHUNK):
        rows = slice(start, start + CHUNK)
        f = mean[rows, None] + np.sqrt(var)[rows, None] * points[None, :]
        found.append(given(likelihood, f, y[rows, None]) @ weights)
    return np.concatenate(found).clip(0, 1)


def _root(
    cdf: Callable[[np.ndarray], np.ndarray],
    aims: np.ndarray,
    centre: np.ndarray,
    width: np.ndarray,
) -> np.ndarray:
    """Where a distribution function has given values, by secants of its normal score.

    The score is nearly a line, of the slope that the first two moments say.
    """
    tiny = 2.0**-53
    gap = lambda t: special.ndtri(np.clip(cdf(t), tiny, 1 - tiny)) - special.ndtri(aims)
    t = centre + width * special.ndtri(aims)
    error, slope = gap(t), 1 / width
    for _ in range(LOOKS):
        is_far = ~(np.abs(error) < NEAR)
        if not is_far.any():
            break
        # A row that is there stays, so that it does not depend on the others.
        step = np.where(is_far, np.clip(-error / slope, -3 * width, 3 * width), 0)
        before, t = error, t + step
        error = gap(t)
        found = (error - before) / np.where(step == 0, 1, step)
        slope = np.where((step != 0) & (found > 0), found, slope)
    return t


def _count(
    cdf: Callable[[np.ndarray], np.ndarray], aims: np.ndarray, guess: np.ndarray
) -> np.ndarray:
    """The first counts at which a distribution function has given values."""
    low, high = np.full(len(aims), -1.0), np.floor(guess) + 1
    while (is_short := cdf(high) < aims).any():
        low, high = np.where(is_short, high, low), np.where(is_short, 2 * high, high)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        is_short = cdf(middle) < aims
        # A bracket of one step has its middle at its lower end, which is short.
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    return high


# P(at most y, given f). SciPy ends each sum when it is done; in a compiled loop all
# rows wait for the slowest, some hundred times as long.


def _gamma(likelihood: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    shape = float(likelihood.shape)
    return special.gammainc(shape, shape * np.maximum(y, 0) * np.exp(-f))


def _beta(likelihood: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    mean = special.expit if likelihood.link == "logit" else special.ndtr
    sides = (float(likelihood.scale) * mean(side) for side in (f, -f))
    alpha, beta = (np.maximum(side, np.finfo(float).tiny) for side in sides)
    return special.betainc(alpha, beta, np.clip(y, 0, 1))


def _poisson(likelihood: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    below = special.gammaincc(np.floor(np.maximum(y, 0)) + 1, np.exp(f))
    return np.where(y < 0, 0, below)


def _negative_binomial(likelihood: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    log_dispersion = float(likelihood.log_dispersion)
    success = special.expit(-f - log_dispersion)
    failures = np.floor(np.maximum(y, 0)) + 1
    below = special.betainc(np.exp(-log_dispersion), failures, success)
    return np.where(y < 0, 0, below)


GIVEN: dict[type, Given] = {
    likelihoods.Gamma: _gamma,
    likelihoods.Beta: _beta,
    likelihoods.Poisson: _poisson,
    likelihoods.NegativeBinomial: _negative_binomial,
}
