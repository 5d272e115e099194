"""The likelihood of an estimator, and the units in which it sees inputs and targets."""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import _check_sample_weight

from natgrad._registry import LIKELIHOODS, names
from natgrad._text import require_choice
from natgrad.errors import InputError
from natgrad.gp import likelihoods, means
from natgrad.sklearn._columns import censored


class Targets(NamedTuple):
    """A likelihood for a table's targets, seen in units of `scale` from `centre`.

    `mean` is where the latent functions begin, and q learns what is left.
    """

    likelihood: Any
    centre: Any = 0.0  # one for each of several outputs
    scale: Any = 1.0
    mean: Any = None


CONSTANT = 1e300
"""The scale of a constant input: in units of it all values are 0, new ones too. It is
finite, as a file holds no infinity."""

OTHERS = ", or one of natgrad.gp.likelihoods"

LEAST_COPIED = 0.01
"""With a smaller share of copies, a table is left as it is."""

LEAST_AGREEING = 0.99
"""Equal rows are copies if so large a share of the pairs with equal inputs have equal
targets."""

FEWEST_DISTINCT = 32
"""With fewer distinct rows, inputs may have few values by design."""

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


def make(name: str, classes: int = 2) -> Any:
    """A likelihood with a name, for targets in the units of its support."""
    return getattr(likelihoods, LIKELIHOODS[name].kind).initial(classes)


def units(
    likelihood: Any, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
) -> Targets:
    """In which units a likelihood sees its targets, and where its function begins.

    Real ones have mean 0 and variance 1, or a size of 1 if they are all equal; positive
    ones have mean 1 for an exposure of 1, where 0 stays 0. All others are as they are.
    The units of the user are all that a likelihood of the user's own knows.
    """
    if likelihood.observed.parameters is None:
        return Targets(likelihood)
    if likelihood.is_location:
        y = y - columns.get("offset", 0.0)
        centre, deviation = centre_and_deviation(y[:, None], weight)
        scale = deviation[0] or abs(centre[0]) or 1.0
        return Targets(likelihood, float(centre[0]), float(scale))
    rate = columns.get("trials", np.ones(len(y)))
    if likelihood.has_exposure:
        likelihood.check(y)
        rate = columns.get("exposure", 1.0) * np.exp(columns.get("offset", 0.0)) * rate
    mean = float(weight @ y / max(weight @ rate, 1e-300))
    if likelihood.has_scale:
        return Targets(likelihood, 0.0, mean)
    return Targets(likelihood, mean=means.Constant(likelihood.start(mean)))


def regression(
    likelihood: Any, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
) -> Targets:
    """What a regressor of this likelihood sees of its targets.

    The parameters of an object are in the user's units, and are scaled as targets are.
    """
    if not isinstance(likelihood, likelihoods.AbstractLikelihood):
        require_choice("likelihood", likelihood, ("auto", *names("regression")), OTHERS)
        name = "gaussian" if likelihood == "auto" else likelihood
        return units(censored(make(name), columns), y, weight, columns)
    targets = units(censored(widened(likelihood), columns), y, weight, columns)
    scaled = targets.likelihood.in_units(float(targets.scale))
    return targets._replace(likelihood=scaled)


def classification(likelihood: Any, classes: int) -> Targets:
    """What a classifier of this likelihood sees of its labels 0, 1, ..."""
    if isinstance(likelihood, likelihoods.AbstractLikelihood):
        return Targets(widened(likelihood))
    known = ("auto", *names("classification"))
    require_choice("likelihood", likelihood, known, OTHERS)
    if likelihood == "auto":
        likelihood = "bernoulli" if classes == 2 else "softmax"
    if likelihood == "bernoulli" and classes != 2:
        raise InputError(
            f"likelihood is 'bernoulli', which has 2 classes, and y has {classes}; use "
            "'softmax' or 'robust-max'"
        )
    return Targets(make(likelihood, classes))


def ordinal(labels: np.ndarray, weight: np.ndarray, classes: int) -> Targets:
    """Edges where the prior has the classes as often as the table has them."""
    counts = np.bincount(labels, weights=weight, minlength=classes)
    below = np.cumsum(counts)[:-1] / counts.sum()
    # The prior variance is 2 at first, and the noise adds a half.
    edges = math.sqrt(2.5) * ndtri(np.clip(below, 1e-3, 1 - 1e-3))
    edges += 1e-3 * np.arange(len(edges))  # apart, where a class has no row
    return Targets(likelihoods.Ordinal(edges, math.sqrt(0.5), learn_edges=True))


def weights(x: np.ndarray, sample_weight: Any, column: Any) -> np.ndarray:
    """How much each row counts, by `sample_weight` and by a column of the table."""
    check = functools.partial(
        _check_sample_weight, X=x, dtype=float, ensure_non_negative=True
    )
    return check(sample_weight) * check(column)


def widened(tree: Any) -> Any:
    """The same object with its numbers in 64 bits.

    JAX makes them in 32 by default, and they would be trained so.
    """
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf,
        tree,
    )


def merge_duplicates(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that repeat, once, with their weights added."""
    rows = np.column_stack([x, y]) + 0.0  # zeros of both signs are equal
    distinct, places = np.unique(rows, axis=0, return_inverse=True)
    weight = np.bincount(places.reshape(-1), weights=weight, minlength=len(distinct))
    return distinct[:, :-1], distinct[:, -1], weight


def without_copies(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Rows without copies of others, with their largest weights; how many were copies.

    Real targets that were measured twice differ by their noise. Copies agree, and the
    evidence has no bound where the noise is 0.
    """
    inputs = np.unique(x + 0.0, axis=0, return_inverse=True)[1].reshape(-1)
    rows = np.column_stack([inputs, y])
    _, first, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    places, copies = places.reshape(-1), len(y) - len(first)
    if copies < LEAST_COPIED * len(y) or len(first) < FEWEST_DISTINCT:
        return x, y, weight, 0
    equal_rows, equal_inputs = (_pairs(np.bincount(i)) for i in (places, inputs))
    if equal_rows < LEAST_AGREEING * equal_inputs:
        return x, y, weight, 0
    largest = np.zeros(len(first))
    np.maximum.at(largest, places, weight)
    order = np.argsort(first)
    kept = first[order]
    return x[kept], y[kept], largest[order], copies


def _pairs(counts: np.ndarray) -> float:
    """How many pairs there are within groups of these sizes."""
    counts = counts.astype(float)
    return float((counts * (counts - 1) / 2).sum())
