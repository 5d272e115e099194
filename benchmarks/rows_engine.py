"""The engine of `natgrad.gp.rows` as a method of the study of rows, with nothing set.

Real targets and counts are warped; `engine_sites` gives counts sites of a negative
binomial instead. Labels have sites of a Bernoulli or of a softmax.
"""

import dataclasses
import time
from typing import Any

import jax
import numpy as np
from rows_scores import LEVELS, SMALLEST, clipped

from natgrad.gp import likelihoods, rows


def engine(data: Any, use_groups: bool, likelihood: Any = None) -> dict[str, Any]:
    """Fits with nothing set but the groups, if they are to be used."""
    with jax.enable_x64(True):
        return _engine(data, data["groups"] if use_groups else None, likelihood)


def engine_sites(data: Any, use_groups: bool) -> dict[str, Any]:
    """Counts by sites of a negative binomial."""
    return engine(data, use_groups, likelihoods.NegativeBinomial())


def _engine(data: Any, groups: Any, likelihood: Any) -> dict[str, Any]:
    x, y, x_test, y_test = (data[key] for key in ("x", "y", "x_test", "y_test"))
    if data["kind"] in ("binary", "classes"):
        classes = int(y.max()) + 1
        is_binary = data["kind"] == "binary"
        own = likelihoods.Bernoulli() if is_binary else likelihoods.Softmax(classes)
        fitted = rows.fit(x, y, own, groups=groups)
        began = time.process_time()
        answer = {"probabilities": fitted.probabilities(x_test)}
        spent = time.process_time() - began
        return answer | {"note": f"score {fitted.score:.4f}", "predict_cpu": spent}
    fitted = rows.fit(x, y, likelihood, groups=groups)
    began = time.process_time()
    fitted.latent(x_test)
    spent = time.process_time() - began
    step = data["resolution"]
    quantiles = clipped(fitted.quantiles(x_test, LEVELS), data)
    answer = {"mean": fitted.predict(x_test)[0], "quantiles": quantiles}
    half = 0.0 if step is None else step / 2
    is_sites = likelihood is not None
    above = fitted.cdf(x_test, y_test + (0.0 if is_sites else half))
    below = fitted.cdf(x_test, y_test - (1.0 if is_sites else half))
    if data["kind"] == "count":
        below = np.where(y_test > 0, below, 0.0)
    if step is None:
        density = dataclasses.replace(fitted, resolution=0.0)
        log_density = density.log_density(x_test, y_test)
        below = above
    else:
        log_density = np.log(np.maximum(above - below, SMALLEST) / step)
    answer |= {"log_density": log_density, "cdf_below": below, "cdf_above": above}
    note = f"{fitted.units.warp.kind}; score {fitted.score:.4f}"
    return answer | {"note": note, "predict_cpu": spent}
