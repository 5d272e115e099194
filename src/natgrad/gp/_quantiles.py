"""Distribution functions and quantiles of targets, by SciPy.

The likelihoods have both in JAX too, for your own likelihoods and for export. SciPy
is about a hundred times as fast: it stops each series when it has converged, while in a
compiled loop all rows wait for the slowest.
"""

import math
from typing import Any

import numpy as np
from scipy import special

from natgrad._quadrature import gauss_hermite
from natgrad.gp._target_kinds import Latent, Targets
from natgrad.gp.likelihoods._base import PREDICTIVE_NODES


CHUNK = 1024
"""How many rows are evaluated together: their numbers fit a core's cache."""

EVALUATIONS, TOLERANCE = 60, 1e-10
"""The most evaluations of a distribution function for a quantile, and the tolerance, in
standard deviations of a normal variable."""

HALVINGS = 60
"""If that was not enough, the interval of all t is halved this often."""

FEW_NODES = 16
"""Nodes of the average over f that a search begins with."""

WIDTH, FACTOR = 2.0, 2
"""A table is for means of f so far apart, and deviations of so many powers of two."""

NODES = 12, 12
"""Its nodes, in the mean and in the deviation."""

EXACT = 1e-6
"""How large its last coefficients may be: about how exact its quantiles are, in units
of the logarithm of a target, or of its logit."""


def cdf(
    targets: Targets, mean: Any, var: Any, y: Any, columns: Any = None
) -> np.ndarray:
    """The probability of at most each target."""
    rows, y = _latent(mean, var, columns), np.asarray(y, float)
    below = targets.zeros + (1 - targets.zeros) * _cdf(targets, rows, y)
    return np.where(y < 0, 0, below) if targets.is_count else below


def _cdf(targets: Targets, rows: Latent, y: np.ndarray) -> np.ndarray:
    if not targets.is_count:
        return _averaged(targets, rows, y)
    return np.where(y < 0, 0, _averaged(targets, rows, np.floor(np.maximum(y, 0))))


def quantiles(
    targets: Targets, mean: Any, var: Any, levels: np.ndarray, columns: Any = None
) -> np.ndarray:
    """The quantiles of targets at given levels, [N, levels]."""
    is_zero = levels <= targets.zeros
    some = np.where(is_zero, 0.5, (levels - targets.zeros) / (1 - targets.zeros))
    y = _quantiles(targets, _latent(mean, var, columns), some)
    return np.where(is_zero, 0, y) if targets.zeros else y


def _quantiles(targets: Targets, rows: Latent, levels: np.ndarray) -> np.ndarray:
    t = np.full((len(rows.mean), len(levels)), np.nan)
    if targets.is_tabled:
        _fill_from_tables(targets, rows, levels, t)
    row, column = np.nonzero(np.isnan(t))
    t[row, column] = _searched(targets, rows.of(row), levels[column])
    y = np.stack([targets.at(column, rows) for column in t.T], -1)
    return _whole(targets, rows, levels, y) if targets.is_count else y


def _latent(mean: Any, var: Any, columns: Any) -> Latent:
    columns = {name: np.asarray(each) for name, each in (columns or {}).items()}
    return Latent(np.asarray(mean, float), np.asarray(var, float), columns)


def _averaged(
    targets: Targets, rows: Latent, y: np.ndarray, nodes: int = PREDICTIVE_NODES
) -> np.ndarray:
    """The average over f of the probability of at most each target."""
    points, log_weights = gauss_hermite(nodes)
    # What the others weigh is lost in the rounding of 1.
    is_seen = log_weights > math.log(1e-18)
    points, weights = points[is_seen], np.exp(log_weights[is_seen])
    found = np.empty(len(y))
    for start in range(0, len(y), CHUNK):
        some = slice(start, start + CHUNK)
        latent = rows.of(some)
        both = latent.mean, latent.var
        mean, var = (a if a.ndim == 1 else a[:, -1] for a in both)
        f = mean[:, None] + np.sqrt(var)[:, None] * points
        found[some] = targets.given(f, y[some, None], latent) @ weights
    return found.clip(0, 1)


def _searched(targets: Targets, rows: Latent, aims: np.ndarray) -> np.ndarray:
    """The t at which the distribution function of each row has a given value."""
    search = _Search(targets, rows, aims)
    search.advance(FEW_NODES)
    search.advance(max(PREDICTIVE_NODES, getattr(targets.likelihood, "nodes", 0)))
    return search.t


class _Search:
    """For t at which distribution functions have given values, by secants.

    The normal score of the values is nearly a line in t, of the slope that `begin`
    says.
    """

    def __init__(self, targets: Targets, rows: Latent, aims: np.ndarray):
        self.targets, self.rows, self.aims = targets, rows, special.ndtri(aims)
        centre, width = targets.begin(rows)
        self.t, self.slope, self.most = centre + width * self.aims, 1 / width, width + 1

    def advance(self, nodes: int) -> None:
        """Continues the search, with a quadrature rule of so many nodes."""
        t, slope, left = self.t, self.slope, np.arange(len(self.t))
        low, high = np.full_like(t, -np.inf), np.full_like(t, np.inf)
        step, before, most = np.zeros_like(t), np.zeros_like(t), self.most.copy()
        for _ in range(EVALUATIONS):
            error = self._error(left, nodes)
            moved = step[left] != 0
            found = (error - before[left]) / np.where(moved, step[left], 1)
            slope[left] = np.where(moved & (found > 0), found, slope[left])
            before[left] = error
            low[left] = np.where(error < 0, t[left], low[left])
            high[left] = np.where(error > 0, t[left], high[left])
            is_far = np.abs(error) >= TOLERANCE
            left, error = left[is_far], error[is_far]
            if not len(left):
                break
            guess = t[left] + np.clip(-error / slope[left], -most[left], most[left])
            most *= 1.5
            # If it leaves the bracket of the root, halve that instead.
            is_out = (guess <= low[left]) | (guess >= high[left])
            middle = (low[left] + high[left]) / 2
            guess = np.where(is_out & np.isfinite(middle), middle, guess)
            step[left], t[left] = guess - t[left], guess
        else:
            self._halve(left, nodes)

    def _halve(self, left: np.ndarray, nodes: int) -> None:
        """Halves an interval if secants do not converge.

        If the noise is far smaller than the deviation of f, a sum over nodes is a
        staircase, and secants jump between its steps.
        """
        high = np.full(len(left), self.targets.farthest)
        low = -high
        for _ in range(HALVINGS):
            self.t[left] = (low + high) / 2
            is_low = self._error(left, nodes) < 0
            low = np.where(is_low, self.t[left], low)
            high = np.where(is_low, high, self.t[left])

    def _error(self, left: np.ndarray, nodes: int) -> np.ndarray:
        rows, tiny = self.rows.of(left), 2.0**-53
        y = self.targets.at(self.t[left], rows)
        value = _averaged(self.targets, rows, y, nodes).clip(tiny, 1 - tiny)
        return special.ndtri(value) - self.aims[left]


def _whole(
    targets: Targets, rows: Latent, levels: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The first counts at which distribution functions are at the levels."""
    shape, y = y.shape, np.maximum(y, 0).ravel()
    count, error = np.ceil(y), 10 * EXACT * (1 + y)
    # A root so near a whole number may be on its other side.
    near = np.flatnonzero(np.abs(y - np.rint(y)) <= error)
    rows, aims = rows.of(near // len(levels)), levels[near % len(levels)]
    low, high = np.floor(y - error)[near] - 1, np.ceil(y + error)[near]
    low = np.maximum(low, -1)
    while (is_wide := high - low > 1).any():
        middle = np.where(is_wide, np.floor((low + high) / 2), high)
        is_short = (_cdf(targets, rows, middle) < aims) & is_wide
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    count[near] = high
    return count.reshape(shape)


# Tables


def _fill_from_tables(
    targets: Targets, rows: Latent, levels: np.ndarray, t: np.ndarray
) -> None:
    """Fills t where many rows are alike.

    A quantile is a smooth function of the mean of f and the logarithm of its deviation.
    Where a cell of these has more rows than a table has nodes, it is interpolated.
    """
    size = np.log2(np.maximum(rows.var, 4.0**-40)) / 2
    place = np.stack([rows.mean / WIDTH, size / FACTOR], -1)
    known = np.flatnonzero((np.abs(place) < 1e6).all(1))
    corners, cell = np.unique(np.floor(place[known]), axis=0, return_inverse=True)
    known = known[np.argsort(cell.ravel(), kind="stable")]
    ends = np.cumsum(np.bincount(cell.ravel(), minlength=len(corners)))
    for corner, some in zip(corners, np.split(known, ends[:-1]), strict=True):
        if len(some) <= math.prod(NODES):
            continue
        table = _table(targets, corner, levels)
        last = np.abs(table[-1]).max(0), np.abs(table[:, -1]).max(0)
        good = np.flatnonzero(np.maximum(*last) < EXACT)
        first, second = map(_polynomials, (place[some] - corner).T, NODES)
        product = (first[:, :, None] * second[:, None]).reshape(len(some), -1)
        t[np.ix_(some, good)] = product @ table[..., good].reshape(-1, len(good))


def _table(targets: Targets, corner: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Coefficients of products of Chebyshev polynomials, [first, second, levels]."""
    nodes = [(1 + np.cos(math.pi * (np.arange(n) + 0.5) / n)) / 2 for n in NODES]
    mean, size = WIDTH * (corner[0] + nodes[0]), FACTOR * (corner[1] + nodes[1])
    grid = np.meshgrid(mean, 4.0**size, levels, indexing="ij")
    mean, var, aims = (column.ravel() for column in grid)
    values = _searched(targets, Latent(mean, var), aims).reshape(*NODES, -1)
    first, second = map(_polynomials, nodes, NODES)
    table = np.einsum("ip,jq,ijl->pql", first, second, values)
    # Their squares sum to half the nodes, that of the constant to all of them.
    weight = [np.where(np.arange(n) == 0, 1, 2) / n for n in NODES]
    return table * weight[0][:, None, None] * weight[1][:, None]


def _polynomials(x: np.ndarray, degrees: int) -> np.ndarray:
    """Chebyshev polynomials of the interval from 0 to 1, [N, degrees]."""
    return np.polynomial.chebyshev.chebvander(2 * x - 1, degrees - 1)
