"""What the names of likelihoods mean, and in which units each sees its targets."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from natgrad.errors import InputError
from natgrad.gp import likelihoods, means
from natgrad.sklearn._units import in_units, widened


class Targets(NamedTuple):
    """A likelihood for a table's targets, seen in units of `scale` from `centre`.

    `mean` is where the latent functions begin, and q learns what is left.
    """

    likelihood: Any
    centre: float = 0.0
    scale: float = 1.0
    mean: Any = None


CONSTANT = 1e300
"""The scale of a constant input: in units of it all values are 0, new ones too. It is
finite, as a file holds no infinity."""

ROUNDED = 10 * float(np.finfo(float).eps)
"""A deviation of so small a part of the values is that of their rounding."""


def centre_and_deviation(
    x: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of each column, 0 if it is constant."""
    # Divided by the largest first: squares of what is near 1e300 are infinite.
    size = np.abs(x).max(0)
    size = np.where(size > 0, size, 1.0)
    part = weight / weight.sum()
    inner = x / size
    centre = part @ inner
    deviation = np.sqrt(part @ (inner - centre) ** 2)
    # Equal numbers, and those that differ by their rounding, have a deviation of it.
    is_equal = (deviation <= ROUNDED) | (x.min(0) == x.max(0))
    centre = np.where(is_equal, x[0], centre * size)
    return centre, np.where(is_equal, 0.0, deviation * size)


def input_scales(x: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The scale of each column, or one for all columns if they have one unit.

    They do if most columns that vary have the same minimum and the same maximum, as
    pixels and 0/1 columns do. With its own scale, a pixel at the edge that is almost
    always black would count as much as one in the middle. A constant column has no
    effect, because the rows cannot tell what it would be.
    """
    is_fixed = deviation == 0
    scale = np.where(is_fixed, CONSTANT, deviation)
    low, high = x.min(0), x.max(0)
    varies = (low < high) & ~is_fixed
    spans_all = (low == low.min()) & (high == high.max())
    if 2 * np.count_nonzero(varies & spans_all) <= np.count_nonzero(varies):
        return scale
    largest = deviation[varies].max()
    shared = largest * np.sqrt(np.mean((deviation[varies] / largest) ** 2))
    return np.where(is_fixed, CONSTANT, shared)


def is_constant(scale: np.ndarray) -> np.ndarray:
    """Which inputs were constant when their scales were found."""
    return scale == CONSTANT


def _standardized(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    """Targets of mean 0 and variance 1; if they are all equal, their size is 1."""
    centre, deviation = centre_and_deviation(y[:, None], weight)
    scale = deviation[0] or abs(centre[0]) or 1.0
    return Targets(likelihood, float(centre[0]), float(scale))


def _in_means(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    """Targets of mean 1, where 0 stays 0."""
    likelihood.check(y)
    return Targets(likelihood, 0.0, float(weight @ y / weight.sum()))


def _proportions(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    mean = float(weight @ y / weight.sum())
    mean = min(max(mean, 1e-6), 1 - 1e-6)
    start = math.log(mean / (1 - mean)) if likelihood.link == "logit" else ndtri(mean)
    return Targets(likelihood, mean=means.Constant(float(start)))


def _counts(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    likelihood.check(y)
    mean = float(weight @ y / weight.sum())
    return Targets(likelihood, mean=means.Constant(math.log(max(mean, 1e-3))))


def _as_they_are(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    """Targets in the user's units, which alone a likelihood of the user's own knows."""
    return Targets(likelihood)


RULES: dict[type, Callable[[Any, np.ndarray, np.ndarray], Targets]] = {
    likelihoods.Gaussian: _standardized,
    likelihoods.StudentT: _standardized,
    likelihoods.HeteroskedasticGaussian: _standardized,
    likelihoods.Gamma: _in_means,
    likelihoods.Beta: _proportions,
    likelihoods.Poisson: _counts,
    likelihoods.NegativeBinomial: _counts,
}
"""In which units each kind sees its targets, whether it has a name or is an object."""

REGRESSION: dict[str, Callable[[], Any]] = {
    "gaussian": likelihoods.Gaussian,
    "student-t": likelihoods.StudentT,
    "heteroskedastic": likelihoods.HeteroskedasticGaussian,
    "gamma": likelihoods.Gamma,
    "beta": lambda: likelihoods.Beta(10.0),
    "poisson": likelihoods.Poisson,
    "negative-binomial": likelihoods.NegativeBinomial,
}
"""What a name stands for, with parameters in the units that its rule gives."""

NOISES = ("gaussian", "student-t", "heteroskedastic")
MANY = 256


def noises(rows: int) -> tuple[str, ...]:
    """What "auto" compares for real targets: with few rows there is nothing to compare.

    The estimators and the command ask here, for tables in memory and on disk.
    """
    return NOISES if rows >= MANY else NOISES[:1]


def name_of(kind: str) -> str:
    """The name of a noise that "auto" has chosen, from the name of its class."""
    return next(name for name in NOISES if REGRESSION[name].__name__ == kind)


CLASSES = ("auto", "bernoulli", "softmax", "robust-max")


def regression(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    """What a regressor of this likelihood sees of its targets.

    The parameters of an object are in the user's units, and are scaled as targets are.
    """
    if isinstance(likelihood, likelihoods.AbstractLikelihood):
        rule = RULES.get(type(likelihood), _as_they_are)
        targets = rule(widened(likelihood), y, weight)
        scaled = in_units(targets.likelihood, targets.scale)
        return targets._replace(likelihood=scaled)
    likelihood = "gaussian" if likelihood == "auto" else likelihood
    if likelihood not in REGRESSION:
        raise InputError(
            f"likelihood is {likelihood!r}; it should be one of "
            f"{', '.join(map(repr, REGRESSION))}, or one of natgrad.gp.likelihoods"
        )
    made = REGRESSION[likelihood]()
    return RULES[type(made)](made, y, weight)


def classification(likelihood: Any, classes: int) -> Targets:
    """What a classifier of this likelihood sees of its labels 0, 1, ..."""
    if isinstance(likelihood, likelihoods.AbstractLikelihood):
        return Targets(widened(likelihood))
    if likelihood not in CLASSES:
        raise InputError(
            f"likelihood is {likelihood!r}; it should be one of "
            f"{', '.join(map(repr, CLASSES))}, or one of natgrad.gp.likelihoods"
        )
    if likelihood == "auto":
        likelihood = "bernoulli" if classes == 2 else "softmax"
    if likelihood == "bernoulli" and classes != 2:
        raise InputError(
            f"likelihood is 'bernoulli', which has 2 classes, and y has {classes}; use "
            "'softmax' or 'robust-max'"
        )
    made = {
        "bernoulli": likelihoods.Bernoulli,
        "softmax": lambda: likelihoods.Softmax(classes),
        "robust-max": lambda: likelihoods.RobustMax(classes),
    }
    return Targets(made[likelihood]())


def ordinal(labels: np.ndarray, weight: np.ndarray, classes: int) -> Targets:
    """Edges where the prior has the classes as often as the table has them."""
    counts = np.bincount(labels, weights=weight, minlength=classes)
    below = np.cumsum(counts)[:-1] / counts.sum()
    # The prior variance is 2 at first, and the noise adds a half.
    edges = math.sqrt(2.5) * ndtri(np.clip(below, 1e-3, 1 - 1e-3))
    edges += 1e-3 * np.arange(len(edges))  # apart, where a class has no row
    learned = likelihoods.LearnedEdges(edges)
    return Targets(likelihoods.Ordinal(learned, math.sqrt(0.5)))
