"""Distribution functions and quantiles of several outputs, each as one alone has it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

from natgrad.gp._quantiles import Targets, targets_of


def by_output(
    predictor: Any,
    x: Any,
    by_scipy: Callable[[Targets, int, np.ndarray, np.ndarray], np.ndarray],
    by_jax: Callable[[Any, list[int]], np.ndarray],
) -> np.ndarray:
    """What SciPy gives of the outputs it knows, and JAX of the others, [N, P, ...].

    `by_scipy` is called for each output, with the mean and the variance of its
    function at each row; `by_jax` once, with a predictor of all the other outputs.
    """
    likelihood = predictor.model.likelihood
    targets = list(map(targets_of, likelihood.likelihoods))
    others = [place for place, each in enumerate(targets) if each is None]
    parts: dict[int, np.ndarray] = {}
    if others:
        found = by_jax(_only(predictor, others), others)
        parts |= zip(others, np.moveaxis(found, 1, 0), strict=True)
    if len(others) < len(targets):
        mean, var = predictor.latent(x)
        mixing = np.asarray(likelihood.mixing)
        offset = 0.0 if likelihood.offset is None else np.asarray(likelihood.offset)
        mean, var = mean @ mixing.T + offset, var @ mixing.T**2
        for place, each in enumerate(targets):
            if each is not None:
                parts[place] = by_scipy(each, place, mean[:, place], var[:, place])
    return np.stack([parts[place] for place in range(len(targets))], 1)


def _only(predictor: Any, places: list[int]) -> Any:
    """The predictor of some outputs."""
    likelihood = predictor.model.likelihood
    part = type(likelihood)(
        [likelihood.likelihoods[place] for place in places],
        likelihood.mixing[np.asarray(places)],
        None if likelihood.offset is None else likelihood.offset[np.asarray(places)],
    )
    return eqx.tree_at(lambda tree: tree.model.likelihood, predictor, part)
