"""The width and the tails of predictions, from residuals of rows that were left out."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from scipy import optimize, special

from natgrad.gp._warps import Warp
from natgrad.gp.likelihoods._calibrated import Calibrated


FEWEST = 100
"""With fewer rows the scale does not depend on the residuals nearby."""

STARTS = (-0.2, 0.5), (0.0, 4.0)
"""log scale and log(ν − 2) to begin with: heavy tails, and nearly a Gaussian."""

BOUNDS = ((-3.0, 3.0), (-4.0, 12.0), (0.0, 1.5))
"""Of the two and of the slope."""

LEVELS = (np.arange(40) + 0.5) / 40
"""Of the quantiles that stand for a distribution."""

NEAR = 16
"""How many of the nearest rows tell how large residuals are."""


def log_density(z: np.ndarray, freedom: float) -> np.ndarray:
    """Of Student's t."""
    half = (freedom + 1) / 2
    constant = special.gammaln(half) - special.gammaln(freedom / 2)
    return constant - np.log(freedom * np.pi) / 2 - half * np.log1p(z**2 / freedom)


def roughness(errors: np.ndarray, near: np.ndarray, is_real: Any = True) -> np.ndarray:
    """The mean log size of standardised residuals of the nearest rows, about 0."""
    size, count = (
        np.log(np.abs(errors) + 0.05)[near],
        np.broadcast_to(is_real, near.shape),
    )
    return (size * is_real).sum(1) / np.maximum(count.sum(1), 1) + 0.9


def clipped(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quantiles at most half the range of known targets beyond these."""
    low, high = float(y.min()), float(y.max())
    return np.clip(quantiles, 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low)


def crps(quantiles: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of each row."""
    error = quantiles - y[:, None]
    return (2 * ((error > 0) - LEVELS) * error).mean(1)


class Residuals(NamedTuple):
    """Left-out moments of f at some rows, and their targets, roughness and weights."""

    mean: np.ndarray
    var: np.ndarray
    z: np.ndarray
    rough: np.ndarray
    weight: np.ndarray


def calibrate(
    likelihood: Calibrated,
    residuals: Residuals,
    warp: Warp,
    resolution: float = 0.0,
    is_local: bool = True,
) -> Calibrated:
    """The likelihood with the scale, slope and freedom that left-out rows are likeliest
    with.

    The scale depends on residuals nearby if that lowers the CRPS of these rows too.
    """
    mean, var, z, rough, weight = residuals
    share = weight / weight.sum()
    known = np.exp(float(likelihood.log_scale))
    sd = known * np.sqrt(var + likelihood.known_variance)
    error, y = (z - mean) / sd, warp.back(z)
    half = resolution / 2 * np.exp(warp.log_slope(y)) / sd

    def bounded(u: np.ndarray) -> list[float]:
        return [float(np.clip(a, *b)) for a, b in zip(u, BOUNDS, strict=False)]

    def loss(u: np.ndarray) -> float:
        at = bounded(u)
        log_width = at[0] + (at[2] * rough if len(at) > 2 else 0)
        freedom, narrow = 2 + math.exp(at[1]), np.exp(-log_width)
        density = log_density(error * narrow, freedom) - log_width
        if resolution:
            # In the lower half, where a difference of probabilities keeps its digits.
            ends = ((-np.abs(error) + side * half) * narrow for side in (1, -1))
            high, low = (special.stdtr(freedom, end) for end in ends)
            is_wide = high - low > 1e-9
            mass = np.log(np.where(is_wide, high - low, 1)) - np.log(2 * half)
            density = np.where(is_wide, mass, density)
        return -float(share @ density)

    def best(slope: tuple[float, ...]) -> tuple[Calibrated, float]:
        options = {"maxiter": 600, "xatol": 1e-4, "fatol": 1e-7}
        found = [
            optimize.minimize(
                loss, (*at, *slope), method="Nelder-Mead", options=options
            )
            for at in STARTS
        ]
        scale, log_freedom, *rest = bounded(min(found, key=lambda each: each.fun).x)
        local, freedom = (rest[0] if rest else 0.0), 2 + math.exp(log_freedom)
        width = sd * np.exp(scale + local * rough)
        t = special.stdtrit(freedom, LEVELS)
        quantiles = clipped(warp.back(mean[:, None] + width[:, None] * t), y)
        values = float(likelihood.log_scale) + scale, log_freedom, local
        where = lambda tree: (tree.log_scale, tree.log_freedom, tree.slope)
        made = eqx.tree_at(where, likelihood, tuple(map(np.asarray, values)))
        return made, float(share @ crps(quantiles, y))

    plain, score = best(())
    if len(z) < FEWEST or not is_local:
        return plain
    local, local_score = best((0.3,))
    return local if local_score <= score else plain
