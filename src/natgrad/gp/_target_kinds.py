"""Distribution functions of targets by SciPy, for each likelihood that has one."""

import abc
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from natgrad.gp.likelihoods._base import AbstractLikelihood
from natgrad.gp.likelihoods._binomial import Binomial
from natgrad.gp.likelihoods._censored import Censored
from natgrad.gp.likelihoods._continuous import Beta, HeteroskedasticGaussian, StudentT
from natgrad.gp.likelihoods._discrete import NegativeBinomial, Poisson
from natgrad.gp.likelihoods._inflated import (
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)
from natgrad.gp.likelihoods._positive import Gamma, Weibull


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
    zeros = 0.0
    """The probability of an additional zero, which does not depend on f."""

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
    """The mean and the variance of f at each row, and what comes with its target."""

    mean: np.ndarray
    var: np.ndarray
    columns: Mapping[str, np.ndarray] = {}

    def of(self, rows: Any) -> "Latent":
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Latent(self.mean[rows], self.var[rows], columns)


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


class _Weibull(Targets):
    is_tabled = False

    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        shape = float(self.likelihood.shape)
        with np.errstate(divide="ignore"):  # of 0, whose probability is 0
            log_hazard = shape * (np.log(np.maximum(y, 0)) - f)
        return -np.expm1(-np.exp(np.minimum(log_hazard, 700)))

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        shape = float(self.likelihood.shape)
        square = rows.var + math.pi**2 / 6 / shape**2
        return rows.mean - np.euler_gamma / shape, np.sqrt(square)

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        return np.exp(np.minimum(t, 700.0))


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


class _ZeroInflatedPoisson(_Poisson):
    def __init__(self, likelihood: Any):
        super().__init__(likelihood)
        self.zeros = float(likelihood.zeros)


class _ZeroInflatedNegativeBinomial(_NegativeBinomial):
    def __init__(self, likelihood: Any):
        super().__init__(likelihood)
        self.zeros = float(likelihood.zeros)


class _Binomial(Targets):
    """y = (n + 1)/(1 + exp(−t)) − 1: the quantile is the next whole number."""

    is_count = True
    is_tabled = False  # rows differ by their trials too

    def _trials(self, rows: Latent) -> np.ndarray:
        own = 1 if self.likelihood.trials is None else self.likelihood.trials
        trials = rows.columns.get("trials", np.asarray(own, float))
        return np.broadcast_to(np.asarray(trials, float), rows.mean.shape)

    def _chance(self, f: np.ndarray) -> np.ndarray:
        return (special.expit if self.likelihood.link == "logit" else special.ndtr)(f)

    def given(self, f: np.ndarray, y: np.ndarray, rows: Latent) -> np.ndarray:
        trials, tiny = self._trials(rows)[:, None], np.finfo(float).tiny
        successes, failures = (np.maximum(n, tiny) for n in (y + 1, trials - y))
        below = special.betainc(failures, successes, self._chance(-f))
        return np.where(y < trials, below, 1)

    def begin(self, rows: Latent) -> tuple[np.ndarray, np.ndarray]:
        trials, chance = self._trials(rows), self._chance(rows.mean)
        share = (trials * chance + 0.5) / (trials + 1)
        both = share * (1 - share)
        # The slope of either link is near this, or below.
        square = trials * both + trials**2 * both * np.minimum(rows.var, 1) / 2
        return special.logit(share), np.sqrt(square) / ((trials + 1) * both)

    def at(self, t: np.ndarray, rows: Latent) -> np.ndarray:
        return (self._trials(rows) + 1) * special.expit(t) - 1


KNOWN: dict[type, type[Targets]] = {
    StudentT: _StudentT,
    HeteroskedasticGaussian: _Heteroskedastic,
    Gamma: _Gamma,
    Weibull: _Weibull,
    Beta: _Beta,
    Poisson: _Poisson,
    NegativeBinomial: _NegativeBinomial,
    ZeroInflatedPoisson: _ZeroInflatedPoisson,
    ZeroInflatedNegativeBinomial: _ZeroInflatedNegativeBinomial,
    Binomial: _Binomial,
}


def targets_of(likelihood: AbstractLikelihood) -> Targets | None:
    """The targets of a likelihood, or None if it is not known here."""
    if isinstance(likelihood, Censored):
        return targets_of(likelihood.noise)
    kind = KNOWN.get(type(likelihood))
    return kind(likelihood) if kind else None
