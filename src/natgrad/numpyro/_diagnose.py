"""How well a guide fits the posterior of its model."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import Trace_ELBO

from natgrad.errors import InputError, warn


POOR = 0.7
"""k-hat above which importance weights, and so the guide, are not reliable."""

PRIOR = 10.0
"""How many observations of a shape of 0.5 the estimate of k-hat starts from."""

FEWEST = 5
"""The fewest weights that a tail is fitted to."""


class Diagnosis(NamedTuple):
    """The ELBO in nats, its standard error, and k-hat."""

    elbo: float
    error: float
    khat: float


def diagnose(
    model: Callable[..., Any],
    guide: Callable[..., Any],
    params: dict[str, Any],
    *args: object,
    draws: int = 4000,
    rng_key: Array | None = None,
    **kwargs: object,
) -> Diagnosis:
    """The ELBO of a guide with its standard error, and k-hat of its importance weights.

    The result has the fields `elbo`, in nats, `error` and `khat`. It works for any
    guide of NumPyro. k-hat is the shape of the generalized Pareto
    distribution of the largest weights p(z, data)/q(z) (Vehtari et al. 2024). Above 0.7
    natgrad warns that the guide is a poor fit: transform the model, or run NUTS.

    Raises:
        InputError: If a plate takes a subsample, as the weights need all rows, or if
            there are fewer than 25 draws.

    >>> import numpyro
    >>> from numpyro import distributions as dist
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
    >>> result = natgrad.numpyro.fit(model, 10.0)
    >>> check = natgrad.numpyro.diagnose(model, result.guide, result.params, 10.0)
    >>> print(f"{check.elbo:.2f} {check.error:.2f}")  # exact: log N(10; 0, 1.25)
    -41.03 0.00
    """
    if draws < 5 * FEWEST:
        raise InputError(f"draws is {draws}; it should be at least {5 * FEWEST}")
    key = jax.random.key(1) if rng_key is None else rng_key
    _check_plates(model, params, args, kwargs)
    loss: Callable[..., Any] = Trace_ELBO().loss
    weigh = lambda key: -loss(key, params, model, guide, *args, **kwargs)
    weights = np.asarray(lax.map(weigh, jax.random.split(key, draws)))
    khat = pareto_shape(weights)
    if not khat <= POOR:
        warn(
            f"k-hat is {khat:.2f}, above {POOR}: the guide is a poor fit; transform "
            "the model, or run NUTS",
            UserWarning,
        )
    error = float(weights.std(ddof=1)) / math.sqrt(draws)
    return Diagnosis(float(weights.mean()), error, khat)


def _check_plates(
    model: Callable[..., Any], params: dict[str, Any], args: Any, kwargs: Any
) -> None:
    seeded = handlers.substitute(handlers.seed(model, jax.random.key(0)), params)
    for site in handlers.trace(seeded).get_trace(*args, **kwargs).values():
        if site["type"] != "plate":
            continue
        size, subsample = site["args"]
        if subsample is not None and subsample != size:
            raise InputError(
                f"plate {site['name']!r} takes {subsample} of {size} rows; diagnose "
                "needs a model without subsample_size"
            )


def pareto_shape(log_weights: np.ndarray) -> float:
    """k-hat of importance weights: infinite if one of them is not a number.

    The largest weights, min(S/5, 3√S) of S, are fitted above the next one. If they are
    all the same up to rounding, there is no tail.
    """
    if not np.isfinite(log_weights).all():
        return math.inf
    rounding = np.finfo(log_weights.dtype).eps * max(1.0, np.abs(log_weights).max())
    ordered = np.sort(log_weights - log_weights.max()).astype(float)
    tail = min(len(ordered) // 5, math.ceil(3 * math.sqrt(len(ordered))))
    cut = ordered[-tail - 1]
    if -cut <= 1000 * rounding:
        return -math.inf
    shape = generalized_pareto(np.exp(ordered[-tail:]) - np.exp(cut))
    return (tail * shape + PRIOR * 0.5) / (tail + PRIOR)


def generalized_pareto(ordered: np.ndarray) -> float:
    """The shape of a generalized Pareto distribution, by Zhang and Stephens (2009).

    `ordered` are draws above zero in increasing order. With b = −shape/scale, the
    shape that is most likely given b is the mean of log(1 − b x). The estimate is that
    at the mean of b over a grid, weighted by the profile likelihood.
    """
    number = len(ordered)
    points = 30 + math.floor(math.sqrt(number))
    quartile = ordered[math.floor(number / 4 + 0.5) - 1]
    if not quartile > 0:  # one weight is all that is left of the others' digits
        return math.inf
    spread = 1 - np.sqrt(points / (np.arange(points) + 0.5))
    grid = 1 / ordered[-1] + spread / (3 * quartile)
    shapes = np.log1p(-grid[:, None] * ordered).mean(1)
    profile = number * (np.log(-grid / shapes) - shapes - 1)
    weights = np.exp(profile - profile.max())
    best = grid @ weights / weights.sum()
    return float(np.log1p(-best * ordered).mean())
