"""What the names of likelihoods mean, and in which units each sees its targets."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from natgrad.errors import InputError
from natgrad.gp import likelihoods, means


class Targets(NamedTuple):
    """A likelihood for a table's targets, seen in units of `scale` from `centre`.

    `mean` is where the latent functions begin, and q learns what is left.
    """

    likelihood: Any
    centre: float = 0.0
    scale: float = 1.0
    mean: Any = None


Rule = Callable[[np.ndarray, np.ndarray], Targets]


def standardized(make: Callable[[], Any]) -> Rule:
    """Targets of mean 0 and variance 1."""

    def rule(y: np.ndarray, weight: np.ndarray) -> Targets:
        centre, scale = centre_and_scale(y[:, None], weight)
        return Targets(make(), float(centre[0]), float(scale[0]))

    return rule


def centre_and_scale(
    x: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the deviation of each column, or 1 for one that is constant."""
    # Divided by the largest first: squares of what is near 1e300 are infinite.
    size = np.abs(x).max(0)
    size = np.where(size > 0, size, 1.0)
    part = weight / weight.sum()
    inner = x / size
    centre = part @ inner
    deviation = np.sqrt(part @ (inner - centre) ** 2)
    # A constant column of rounded numbers has a deviation of their rounding.
    is_constant = deviation <= 10 * np.finfo(float).eps
    return centre * size, np.where(is_constant, 1.0, deviation * size)


def shared_scale(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The scale of each column, or one for all columns if they have one unit.

    They do if most columns that vary have the same minimum and the same maximum, as
    pixels and 0/1 columns do. With its own scale, a pixel at the edge that is almost
    always black would count as much as one in the middle.
    """
    low, high = x.min(0), x.max(0)
    varies = low < high
    spans_all = (low == low.min()) & (high == high.max())
    if 2 * np.count_nonzero(varies & spans_all) <= np.count_nonzero(varies):
        return scale
    largest = scale[varies].max()
    return np.full_like(
        scale, largest * np.sqrt(np.mean((scale[varies] / largest) ** 2))
    )


def _gamma(y: np.ndarray, weight: np.ndarray) -> Targets:
    likelihoods.Gamma().check(y)
    scale = float(weight @ y / weight.sum())
    return Targets(likelihoods.Gamma(), 0.0, scale)


def _beta(y: np.ndarray, weight: np.ndarray) -> Targets:
    mean = float(weight @ y / weight.sum())
    mean = min(max(mean, 1e-6), 1 - 1e-6)
    start = means.Constant(math.log(mean / (1 - mean)))
    return Targets(likelihoods.Beta(10.0), mean=start)


def _counts(make: Callable[[], Any]) -> Rule:
    def rule(y: np.ndarray, weight: np.ndarray) -> Targets:
        make().check(y)
        mean = float(weight @ y / weight.sum())
        return Targets(make(), mean=means.Constant(math.log(max(mean, 1e-3))))

    return rule


REGRESSION: dict[str, Rule] = {
    "gaussian": standardized(likelihoods.Gaussian),
    "student-t": standardized(likelihoods.StudentT),
    "heteroskedastic": standardized(likelihoods.HeteroskedasticGaussian),
    "gamma": _gamma,
    "beta": _beta,
    "poisson": _counts(likelihoods.Poisson),
    "negative-binomial": _counts(likelihoods.NegativeBinomial),
}
NOISES = ("gaussian", "student-t", "heteroskedastic")
"""What real targets may have, of which "auto" finds the best where rows are many."""

CLASSES = ("auto", "bernoulli", "softmax", "robust-max")


def regression(likelihood: Any, y: np.ndarray, weight: np.ndarray) -> Targets:
    """What a regressor of this likelihood sees of its targets."""
    if isinstance(likelihood, likelihoods.AbstractLikelihood):
        return Targets(likelihood)
    likelihood = "gaussian" if likelihood == "auto" else likelihood
    if likelihood not in REGRESSION:
        raise InputError(
            f"likelihood is {likelihood!r}; it should be one of "
            f"{', '.join(map(repr, REGRESSION))}, or one of natgrad.gp.likelihoods"
        )
    return REGRESSION[likelihood](y, weight)


def classification(likelihood: Any, classes: int) -> Targets:
    """What a classifier of this likelihood sees of its labels 0, 1, ..."""
    if isinstance(likelihood, likelihoods.AbstractLikelihood):
        return Targets(likelihood)
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
