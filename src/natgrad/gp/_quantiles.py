"""Distribution functions and quantiles of targets, by SciPy.

The likelihoods have both in JAX too, for your own likelihoods and for export. SciPy
is about a hundred times as fast: it stops each series when it has converged, while in a
compiled loop all rows wait for the slowest.
"""

import abc
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from natgrad._quadrature import gauss_hermite
from natgrad.gp.likelihoods._base import PREDICTIVE_NODES, AbstractLikelihood
from natgrad.gp.likelihoods._continuous import (
    Beta,
    Gamma,
    HeteroskedasticGaussian,
    StudentT,
)
from natgrad.gp.likelihoods._discrete import NegativeBinomial, Poisson


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


class Targets(abc.ABC):
    """The targets of one likelihood, given the distribution of f at some rows.

    A search has a real number t for each target. `begin` says where it begins: the t
    of a normal score z is near centre + width z.
    """

    is_count = False
    farthest = 700.0
    """How large t may be: beyond it targets overflow."""
    is_tabled = True
    """Whether its distribution function takes so long that a table pays."""

    def __init__(self, likelihood: Any):
        self.likelihood = likelihood

    @abc.abstractmethod
    def given(self, f: np.ndarray, y: np.ndarray, rows: "Latent") -> np.ndarray:
        """The probability of at most y, given f. Of counts, a smooth function of y."""

    @abc.abstractmethod
    def begin(self, rows: "Latent") -> tuple[np.ndarray, np.ndarray]:
        """The centre and the width."""

    @abc.abstractmethod
    def at(self, t: np.ndarray, rows: "Latent") -> np.ndarray:
        """The target of a t."""


class Latent(NamedTuple):
    """The mean and the variance of f at each row, of each latent function."""

    mean: np.ndarray
    var: np.ndarray

    def of(self, rows: Any) -> "Latent":
        return Latent(self.mean[rows], self.var[rows])


class _Real(Targets):
    """y = centre + width sinh(t), which reaches far into heavy tails."""

    is_tabled = False
    farthest = 40.0

    @abc.abstractmethod
    def spread(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        """A mean and a deviation of y, roughly."""

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(rows.mean)), np.ones(len(rows.mean))

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        centre, width = self.spread(rows)
        return centre + width * np.sinh(t)


class _StudentT(_Real):
    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        dof, x = self.likelihood.dof, (y - f) / float(self.likelihood.scale)
        if dof != 3:
            return special.stdtr(dof, x)
        x /= math.sqrt(3)  # a tenth of the time
        return 0.5 + (np.arctan(x) + x / (1 + x * x)) / math.pi

    def spread(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        return rows.mean, np.sqrt(rows.var + float(self.likelihood.scale) ** 2)


class _Heteroskedastic(_Real):
    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        mean, var = rows.mean[:, :1], rows.var[:, :1]
        return special.ndtr((y - mean) / np.sqrt(var + np.exp(2 * f)))

    def spread(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        noise = np.exp(2 * rows.mean[:, 1])
        return rows.mean[:, 0], np.sqrt(rows.var[:, 0] + noise)


class _Gamma(Targets):
    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        shape = float(self.likelihood.shape)
        # 0 and infinity are right here: the probability is then 0 or 1.
        with np.errstate(divide="ignore", over="ignore"):
            part = np.exp(np.log(shape * np.maximum(y, 0)) - f)
        return special.gammainc(shape, part)

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        shape = float(self.likelihood.shape)
        square = rows.var + special.polygamma(1, shape)
        return rows.mean + special.digamma(shape) - math.log(shape), np.sqrt(square)

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        return np.exp(np.minimum(t, 700.0))  # a search may go beyond


class _Beta(Targets):
    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        sides = self._sides(f)
        alpha, beta = (np.maximum(side, np.finfo(float).tiny) for side in sides)
        return special.betainc(alpha, beta, np.clip(y, 0, 1))

    def _sides(self, f: np.ndarray) -> list[np.ndarray]:
        mean = special.expit if self.likelihood.link == "logit" else special.ndtr
        return [float(self.likelihood.scale) * mean(side) for side in (f, -f)]

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        alpha, beta = (np.maximum(side, 0.01) for side in self._sides(rows.mean))
        square = special.polygamma(1, alpha) + special.polygamma(1, beta) + rows.var
        return special.digamma(alpha) - special.digamma(beta), np.sqrt(square)

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        return special.expit(t)


class _Counts(Targets):
    """y = exp(t) − 1: the quantile is the next whole number."""

    is_count = True
    dispersion = 0.0

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        rate = np.exp(np.minimum(rows.mean, 600))
        square = rate + rate**2 * (self.dispersion + rows.var)
        return np.log1p(rate), np.sqrt(square) / (1 + rate)

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        return np.expm1(t)


class _Poisson(_Counts):
    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        return special.gammaincc(y + 1, np.exp(np.minimum(f, 350)))


class _NegativeBinomial(_Counts):
    def __init__(self, likelihood: Any):
        super().__init__(likelihood)
        self.log_dispersion = float(likelihood.log_dispersion)
        self.dispersion = math.exp(self.log_dispersion)

    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        success = special.expit(-f - self.log_dispersion)
        return special.betainc(1 / self.dispersion, y + 1, success)


KNOWN: dict[type, type[Targets]] = {
    StudentT: _StudentT,
    HeteroskedasticGaussian: _Heteroskedastic,
    Gamma: _Gamma,
    Beta: _Beta,
    Poisson: _Poisson,
    NegativeBinomial: _NegativeBinomial,
}


def targets_of(likelihood: AbstractLikelihood) -> Targets | None:
    """The targets of a likelihood, or None if it is not known here."""
    kind = KNOWN.get(type(likelihood))
    return kind(likelihood) if kind else None


def cdf(targets: Targets, mean: Any, var: Any, y: Any) -> np.ndarray:
    """The probability of at most each target."""
    y = np.asarray(y, float)
    if not targets.is_count:
        return _averaged(targets, _latent(mean, var), y)
    some = _averaged(targets, _latent(mean, var), np.floor(np.maximum(y, 0)))
    return np.where(y < 0, 0, some)


def quantiles(targets: Targets, mean: Any, var: Any, levels: np.ndarray) -> np.ndarray:
    """The quantiles of targets at given levels, [N, levels]."""
    rows = _latent(mean, var)
    t = np.full((len(rows.mean), len(levels)), np.nan)
    if targets.is_tabled:
        _fill_from_tables(targets, rows, levels, t)
    row, column = np.nonzero(np.isnan(t))
    t[row, column] = _searched(targets, rows.of(row), levels[column])
    y = np.stack([targets.at(column, rows) for column in t.T], -1)
    return _whole(targets, rows, levels, y) if targets.is_count else y


def _latent(mean: Any, var: Any) -> Latent:
    return Latent(np.asarray(mean, float), np.asarray(var, float))


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
        mean, var = (a if a.ndim == 1 else a[:, -1] for a in latent)
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
        is_short = (cdf(targets, *rows, middle) < aims) & is_wide
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
