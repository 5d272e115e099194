"""Many rows with Gaussian noise: hyperparameters from a sample, q from all rows.

A bound with few inducing inputs prefers smooth functions and much noise, as it pays for
what they cannot explain. The evidence of a sample does not. It learns the
hyperparameters; then the best q is one natural step away, and one pass over all rows is
enough for thousands of inducing inputs.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from natgrad._normal import LOG_ROOT_TAU
from natgrad._runtime.compiler import SHORT_RUN
from natgrad.data._batch import Batch
from natgrad.gp import exact
from natgrad.gp._conjugate import RowSums, prior, row_sums, solved
from natgrad.gp._few_rows import misfit_of_sample
from natgrad.linalg._triangular import eye_like, inverse_cholesky
from natgrad.train._history import Record
from natgrad.train._loop import Fitted


TRIED, FLAT = 12, 1e-3
"""After so many noises no more are tried; and the least gain, in nats per row."""


def fit(
    initial: Sequence[exact.Hyperparameters],
    inducing: Any,
    sample: Batch,
    rows: Batch,
    held_out: Batch,
    **options: Any,
) -> Fitted:
    """A model of `rows` and `held_out`, whose hyperparameters a sample of rows learns.

    The noise of the sample is too small for what the inducing inputs leave unexplained,
    so the noise is the one that predicts the held-out rows best. Their log density is
    the score of the last record; its objective is still that of the sample. q is then
    that of all rows.
    """
    fitted = exact.learn(initial, sample, misfit_of_sample, **options)
    began, history, of = time.monotonic(), fitted.history, fitted.params
    inducing = np.asarray(inducing)
    sums, seen = _sums(of, inducing, rows), _seen(of, inducing, held_out)
    score = lambda noise: float(_score(sums, *seen, jnp.asarray(noise**2)))
    noise, best = _best(score, math.sqrt(float(of.likelihood.variance)))
    of = of._replace(likelihood=type(of.likelihood)(noise**2))
    sums = RowSums(*map(jnp.add, sums, _sums(of, inducing, held_out)))
    model = _solved(of, inducing, sums)
    last = history[-1]
    seconds = last.seconds + time.monotonic() - began
    history.add(Record(last.step, seconds, last.objective, score=best))
    return Fitted(model, history)


def _best(score: Callable[[float], float], start: float) -> tuple[float, float]:
    """The noise with the highest score, to a factor of √2, and the score.

    Where a score is not finite, there is too little noise.
    """
    known: dict[float, float] = {}

    def at(place: float) -> float:
        if place not in known:
            value = score(start * 2.0**place)
            known[place] = value if math.isfinite(value) else -math.inf
        return known[place]

    place, width = 0.0, 1.0
    while at(place) == -math.inf and len(known) < TRIED:
        place += 1.0
    while width >= 0.5 and len(known) < TRIED:
        better = max((place, place + width, place - width), key=at)
        is_better = at(better) > at(place) + FLAT
        place, width = (better, width) if is_better else (place, width / 2)
    place = max(known, key=known.__getitem__)
    return start * 2.0**place, known[place]


def _rows_seen(of: Any, inducing: Any, batch: Batch) -> tuple[Any, Any, Any, Any]:
    """What the score needs of rows: features, rest, residuals and weights."""
    rows = prior(of, inducing).project(jnp.asarray(batch.x))
    weight = jnp.ones(len(batch.x)) if batch.weight is None else batch.weight
    return rows.features, jnp.maximum(rows.rest, 0), batch.y - rows.mean, weight


def _density(
    sums: RowSums, features: Any, rest: Any, residual: Any, weight: Any, variance: Any
) -> Any:
    """The mean log density of rows at a variance of the noise."""
    precision = sums.gram / variance
    inverse = inverse_cholesky(precision + eye_like(precision))
    spread = inverse @ features
    mean = spread.T @ (inverse @ sums.moment) / variance
    total = variance + rest + (spread**2).sum(0)
    density = -LOG_ROOT_TAU - (jnp.log(total) + (residual - mean) ** 2 / total) / 2
    return weight @ density / weight.sum()


# Only `fit` calls these: jax refuses compiler options inside another program.
_jit: Any = eqx.filter_jit  # its type knows of no options of jax.jit
_sums = _jit(row_sums, compiler_options=SHORT_RUN)
_solved = _jit(solved, compiler_options=SHORT_RUN)
_seen = _jit(_rows_seen, compiler_options=SHORT_RUN)
_score = _jit(_density, compiler_options=SHORT_RUN)
