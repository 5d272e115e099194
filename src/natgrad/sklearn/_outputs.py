"""Several outputs of a regressor: their values, their units, where a fit starts."""

from typing import Any

import numpy as np
from sklearn.utils import check_array

from natgrad.errors import InputError
from natgrad.gp.kernels import Separate
from natgrad.gp.likelihoods import LinearCoregionalization
from natgrad.sklearn._targets import Targets, regression


COMPONENTS = 3
"""The most principal components to begin with. Each is the start of two latent
functions, a smooth one and a rough one."""

LEAST = 0.1
"""A latent function starts at least this large, or it would never be found."""


def is_several(y: Any) -> bool:
    """Whether targets have two columns or more."""
    shape = np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1


def numbers(y: Any) -> np.ndarray:
    """The outputs as numbers; NaN is one that was not observed."""
    rules: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
    return check_array(y, input_name="y", **rules)


def require_outputs(y: np.ndarray, centre: Any) -> None:
    """Raises an InputError unless targets have as many outputs as there are units."""
    if np.ndim(centre) and y.shape[1:] != np.shape(centre):
        wanted = [len(y), *np.shape(centre)]
        raise InputError(f"y has shape {list(y.shape)}; it should be {wanted}")


def checked(y: Any, is_first: bool) -> np.ndarray:
    """The outputs of a table; the first rows should have some of each."""
    y = numbers(y)
    is_empty = np.isnan(y).all(0)
    if is_first and is_empty.any():
        raise InputError(
            f"output {is_empty.argmax()} has no value but NaN; leave it out, or give "
            "some of its values"
        )
    return y


def candidates(
    likelihood: Any,
    kernel: Any,
    y: np.ndarray,
    weight: np.ndarray,
    columns: dict[str, np.ndarray],
) -> list[Targets]:
    """The mixture of latent functions to begin with, each output in its own units."""
    if columns:
        raise InputError(
            f"y has {y.shape[1]} outputs, and columns has {', '.join(columns)}; with "
            "several outputs it should have only 'weight'"
        )
    number = y.shape[1]
    is_list = isinstance(likelihood, list | tuple)
    each = list(likelihood) if is_list else [likelihood] * number
    if len(each) != number:
        raise InputError(
            f"likelihood has {len(each)} items and y has {number} outputs; give one "
            "likelihood for all outputs, or a list with one for each"
        )
    seen = ~np.isnan(y)
    found = [
        regression(name, column[own], weight[own], {})
        for name, column, own in zip(each, y.T, seen.T, strict=True)
    ]
    centre = np.array([targets.centre for targets in found])
    scale = np.array([targets.scale for targets in found])
    means = [targets.mean for targets in found]
    offset = None
    if any(mean is not None for mean in means):
        offset = np.array([0.0 if m is None else float(m.value) for m in means])
    components = latents = min(number, COMPONENTS)
    if isinstance(kernel, str):
        latents = 2 * components
    elif isinstance(kernel, Separate):
        latents = len(kernel.kernels)
        components = min(number, latents)
    mixing = initial_mixing(y, weight, components)
    mixing = mixing[:, np.arange(latents) % components]
    each = [targets.likelihood for targets in found]
    return [Targets(LinearCoregionalization(each, mixing, offset), centre, scale)]


def initial_mixing(y: np.ndarray, weight: np.ndarray, number: int) -> np.ndarray:
    """The first principal components of the outputs, by correlations of those seen."""
    seen = ~np.isnan(y)
    count = np.where(seen, weight[:, None], 0.0)
    filled = np.where(seen, y, 0.0)
    size = np.abs(filled).max(0)
    filled = filled / np.where(size > 0, size, 1.0)  # squares may overflow
    centred = np.where(seen, filled - (count * filled).sum(0) / count.sum(0), 0.0)
    deviation = np.sqrt((count * centred**2).sum(0) / count.sum(0))
    centred = centred / np.where(deviation > 0, deviation, 1.0)
    pairs = count.T @ seen
    correlation = (count * centred).T @ centred / np.where(pairs > 0, pairs, 1.0)
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh((correlation + correlation.T) / 2)
    first = np.argsort(-values, kind="stable")[:number]
    mixing = vectors[:, first] * np.sqrt(np.maximum(values[first], LEAST**2))
    largest = np.abs(mixing).argmax(0)
    return mixing * np.sign(mixing[largest, np.arange(number)])


def initial_kernel(starts: list[Any], likelihood: Any) -> Any:
    """The first start, or a kernel for each latent function of several outputs.

    A kernel with a name has several starts: half of the functions get the first, and
    half the last, which is rough.
    """
    if likelihood.outputs is None or isinstance(starts[0], Separate):
        return starts[0]
    if len(starts) == 1:
        return Separate(starts * likelihood.latents)
    half = likelihood.latents // 2
    return Separate([starts[0]] * half + [starts[-1]] * half)
