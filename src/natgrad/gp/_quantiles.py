"""Distribution functions and quantiles of targets, of many rows at once.

A quantile is searched for in NumPy, by secants. A likelihood may have a method
`_scipy_cdf(f, y)`, the probability of at most y given f, of arrays. For incomplete
gamma and beta functions it is about a hundred times as fast: it stops each series when
it has converged, while in a compiled loop all rows wait for the slowest. Of whole
numbers it is a smooth function of y from −1 on. With several latent functions f is the
last; the means and variances of those before it follow y.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import special

from natgrad._padding import chunks
from natgrad._quadrature import gauss_hermite
from natgrad._runtime.programs import LONG_RUN, filter_jit
from natgrad.data._batches import Columns
from natgrad.gp.likelihoods._base import (
    PREDICTIVE_NODES,
    AbstractLikelihood,
    AbstractNumerical,
)
from natgrad.gp.likelihoods._rows import by_row
from natgrad.gp.likelihoods._support import Support


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


class Rows(NamedTuple):
    """A likelihood, the mean and the variance of f, and columns with the targets."""

    likelihood: AbstractLikelihood
    mean: np.ndarray
    var: np.ndarray
    columns: Mapping[str, np.ndarray] = {}

    def take(self, rows: np.ndarray | slice) -> "Rows":
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Rows(self.likelihood, self.mean[rows], self.var[rows], columns)

    @property
    def is_scipy(self) -> bool:
        """Whether its class says so, and no class below that has another function."""
        for kind in map(vars, type(self.likelihood).__mro__):
            if "_scipy_cdf" in kind or "cdf" in kind or "predictive_cdf" in kind:
                return "_scipy_cdf" in kind
        return False

    @property
    def distribution(self) -> Any:
        """That of SciPy which the predictions of a likelihood are, if it says so."""
        known = getattr(
            self.likelihood.given(**self.columns), "_scipy_predictive", None
        )
        return None if known is None else known(self.mean, self.var)

    def cdf(self, y: np.ndarray, nodes: int = PREDICTIVE_NODES) -> np.ndarray:
        """The probability of at most each target; SciPy's is smooth between counts."""
        if not self.is_scipy:
            return self.jax("predictive_cdf", y)
        parts = [slice(start, start + CHUNK) for start in range(0, len(y), CHUNK)]
        found = [self.take(part)._averaged(y[part], nodes) for part in parts]
        return np.concatenate([np.empty(0), *found]).clip(0, 1)

    def _averaged(self, y: np.ndarray, nodes: int) -> np.ndarray:
        points, log_weights = gauss_hermite(nodes)
        # What the others weigh is lost in the rounding of 1.
        is_seen = log_weights > math.log(1e-18)
        points, weights = points[is_seen], np.exp(log_weights[is_seen])
        columns = {name: column[:, None] for name, column in self.columns.items()}
        likelihood: Any = self.likelihood.given(**columns)
        both = (np.asarray(each, float) for each in (self.mean, self.var))
        pairs = zip(*(np.atleast_2d(each.T)[..., None] for each in both), strict=True)
        *first, (mean, var) = pairs
        f = mean + np.sqrt(var) * points
        return likelihood._scipy_cdf(f, y[:, None], *sum(first, ())) @ weights

    def jax(self, method: str, *y: np.ndarray) -> Any:
        """A method of the likelihood at each row."""
        y = tuple(each.astype(self.mean.dtype) for each in y)
        columns, parts = (self.mean, self.var, self.columns, *y), []
        for chunk, size in chunks(columns, CHUNK):
            found = _by_row(self.likelihood, method, *chunk)
            parts.append(jax.tree.map(lambda a, size=size: np.asarray(a)[:size], found))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *parts)


@functools.partial(filter_jit, compiler_options=LONG_RUN)
def _by_row(likelihood: AbstractLikelihood, method: str, *columns: object) -> Any:
    return by_row(likelihood, getattr(type(likelihood), method))(*columns)


def rows_of(
    likelihood: AbstractLikelihood, mean: Any, var: Any, columns: Columns | None = None
) -> Rows:
    """Rows of targets that will be observed, and the columns that these have."""
    likelihood, given = likelihood.observed, columns or {}
    columns = {k: np.asarray(given[k]) for k in likelihood.columns if k in given}
    return Rows(likelihood, np.asarray(mean), np.asarray(var), columns)


def cdf(rows: Rows, y: object) -> np.ndarray:
    """The probability of at most each target."""
    y = np.asarray(y, float)
    if (known := rows.distribution) is not None:
        return known.cdf(y)
    if not rows.likelihood.support.is_whole:
        return rows.cdf(y)
    return np.where(y < 0, 0, rows.cdf(np.floor(np.maximum(y, 0))))


def quantiles(rows: Rows, levels: np.ndarray) -> np.ndarray:
    """The quantiles of targets at given levels, [N, levels]."""
    if (known := rows.distribution) is not None:
        return known.ppf(levels[:, None]).T
    shape = (len(rows.mean), len(levels))
    each = rows.take(np.repeat(np.arange(shape[0]), shape[1]))
    likelihood, aims = rows.likelihood, np.tile(levels, shape[0])
    is_own = type(likelihood).quantile is not AbstractNumerical.quantile
    if is_own and not rows.is_scipy:
        return each.jax("quantile", aims).reshape(shape)
    if likelihood.support.is_whole and not rows.is_scipy:
        return _bisected(each, aims, *_bracket(each, aims)).reshape(shape)
    t = np.full(shape, np.nan)
    if rows.is_scipy and likelihood.support is not Support.REAL and not rows.columns:
        _fill_from_tables(rows, levels, t)
    is_missing = np.isnan(t.ravel())
    t[is_missing.reshape(shape)] = _searched(each.take(is_missing), aims[is_missing])
    y = _targets(each, t.ravel())
    return (_whole(each, aims, y) if likelihood.support.is_whole else y).reshape(shape)


def _start(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """A centre and a width of t, roughly, as if y were near exp(f) or its logit."""
    mean, var = (np.atleast_2d(latent.T)[0] for latent in rows[1:3])
    support = rows.likelihood.support
    if support is Support.REAL:
        return np.zeros_like(mean), np.ones_like(mean)
    if not support.is_whole:
        return mean, np.sqrt(var + 1)
    rate = np.exp(np.minimum(mean, 600)) * rows.columns.get("trials", 1)
    return np.log1p(rate), np.sqrt(rate + rate**2 * var) / (1 + rate)


def _targets(rows: Rows, t: np.ndarray) -> np.ndarray:
    """The targets of t; a real one is the centre of its row plus a width times sinh."""
    y = rows.likelihood.support.at(np.clip(t, -700, 700))
    if rows.likelihood.support is not Support.REAL:
        return y
    mean, var = (np.atleast_2d(latent.T)[0] for latent in rows[1:3])
    log_noise = rows.likelihood.log_noise
    noise = 1.0 if log_noise is None else float(np.exp(log_noise))
    return mean + np.sqrt(var + noise**2) * y


def _searched(rows: Rows, aims: np.ndarray) -> np.ndarray:
    """The t at which the distribution function of each row has a given value."""
    search = _Search(rows, aims)
    search.advance(FEW_NODES)
    search.advance(max(PREDICTIVE_NODES, getattr(rows.likelihood, "nodes", 0)))
    return search.t


class _Search:
    """For t at which distribution functions have given values, by secants.

    The normal score of the values is nearly a line in t.
    """

    def __init__(self, rows: Rows, aims: np.ndarray):
        self.rows, self.aims = rows, special.ndtri(aims)
        centre, width = _start(rows)
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
        high = np.full(len(left), self.rows.likelihood.support.farthest)
        low = -high
        for _ in range(HALVINGS):
            self.t[left] = (low + high) / 2
            is_low = self._error(left, nodes) < 0
            low = np.where(is_low, self.t[left], low)
            high = np.where(is_low, high, self.t[left])

    def _error(self, left: np.ndarray, nodes: int) -> np.ndarray:
        rows, tiny = self.rows.take(left), 2.0**-53
        value = rows.cdf(_targets(rows, self.t[left]), nodes).clip(tiny, 1 - tiny)
        return special.ndtri(value) - self.aims[left]


def _whole(rows: Rows, aims: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The first counts at which distribution functions are at the aims."""
    y = np.maximum(y, 0)
    count, error = np.ceil(y), 10 * EXACT * (1 + y)
    # A root so near a whole number may be on its other side.
    near = np.flatnonzero(np.abs(y - np.rint(y)) <= error)
    low = np.maximum(np.floor(y - error)[near] - 1, -1)
    high = np.ceil(y + error)[near]
    count[near] = _bisected(rows.take(near), aims[near], low, high)
    return count


def _bracket(rows: Rows, aims: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts between which distribution functions reach the aims."""
    high = np.ones_like(aims)
    # Beyond it not all whole numbers exist.
    while (is_low := (cdf(rows, high) < aims) & (high < 2.0**53)).any():
        high = np.where(is_low, 2 * high, high)
    return np.full_like(aims, -1), high


def _bisected(
    rows: Rows, aims: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    while (is_wide := high - low > 1).any():
        middle = np.where(is_wide, np.floor((low + high) / 2), high)
        is_short = (cdf(rows, middle) < aims) & is_wide
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    return high


# Tables


def _fill_from_tables(rows: Rows, levels: np.ndarray, t: np.ndarray) -> None:
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
        table = _table(rows.likelihood, corner, levels)
        last = np.abs(table[-1]).max(0), np.abs(table[:, -1]).max(0)
        good = np.flatnonzero(np.maximum(*last) < EXACT)
        first, second = map(_polynomials, (place[some] - corner).T, NODES)
        product = (first[:, :, None] * second[:, None]).reshape(len(some), -1)
        t[np.ix_(some, good)] = product @ table[..., good].reshape(math.prod(NODES), -1)


def _table(
    likelihood: AbstractLikelihood, corner: np.ndarray, levels: np.ndarray
) -> np.ndarray:
    """Coefficients of products of Chebyshev polynomials, [first, second, levels]."""
    nodes = [(1 + np.cos(math.pi * (np.arange(n) + 0.5) / n)) / 2 for n in NODES]
    mean, size = WIDTH * (corner[0] + nodes[0]), FACTOR * (corner[1] + nodes[1])
    grid = np.meshgrid(mean, 4.0**size, levels, indexing="ij")
    mean, var, aims = (column.ravel() for column in grid)
    values = _searched(Rows(likelihood, mean, var), aims).reshape(*NODES, -1)
    first, second = map(_polynomials, nodes, NODES)
    table = np.einsum("ip,jq,ijl->pql", first, second, values)
    # Their squares sum to half the nodes, that of the constant to all of them.
    weight = [np.where(np.arange(n) == 0, 1, 2) / n for n in NODES]
    return table * weight[0][:, None, None] * weight[1][:, None]


def _polynomials(x: np.ndarray, degrees: int) -> np.ndarray:
    """Chebyshev polynomials of the interval from 0 to 1, [N, degrees]."""
    return np.polynomial.chebyshev.chebvander(2 * x - 1, degrees - 1)
