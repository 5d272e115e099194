"""Many rows with Gaussian noise: hyperparameters from a sample, q from all rows.

A bound with few inducing inputs prefers smooth functions and much noise, as it pays for
what they cannot explain. The evidence of a sample does not. It learns the
hyperparameters; then the best q is one natural step away, and one pass over all rows is
enough for thousands of inducing inputs.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad._normal import LOG_ROOT_TAU
from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Batch
from natgrad.gp._conjugate import (
    Hyperparameters,
    RowSums,
    in_floating_point,
    inverse_of_prior,
    root_of_covariance,
    row_sums,
    solved,
)
from natgrad.gp._few_rows import least_noise
from natgrad.gp._parameters import Numbers
from natgrad.linalg._triangular import lower_apply
from natgrad.train._history import Record
from natgrad.train._loop import Fitted
from natgrad.train._progress import announce


TRIED, FLAT = 12, 1e-3
"""After so many noises no more are tried; and the least gain, in nats per row."""


def fit(
    learned: Fitted,
    inducing: Numbers,
    rows: Batch,
    held_out: Batch,
    progress: bool | str = True,
) -> Fitted:
    """A model of `rows` and `held_out`, with hyperparameters learned from a sample.

    The noise of the sample is too small for what the inducing inputs leave unexplained,
    so the noise is the one that predicts the held-out rows best. Their log density is
    the score of the last record; its objective is still that of the sample. q is then
    that of all rows.
    """
    began, history, hyper = time.monotonic(), learned.history, learned.params
    inducing = np.asarray(inducing)
    what = f"all rows, {len(inducing):,} inducing inputs"
    announce(what, bool(progress))
    sums, seen = _one_pass(hyper, inducing, rows, held_out)
    least = float(least_noise(seen.residual, seen.weight))

    def score(noise: float) -> float:
        if noise < least:
            return -math.inf
        variance = jnp.asarray(noise**2)
        return float(_score(_root(sums, variance), sums, seen, variance))

    noise, best = _best(score, math.sqrt(float(hyper.likelihood.variance)))
    hyper = hyper._replace(likelihood=type(hyper.likelihood)(noise**2))
    others = _counted(rows) - len(inducing)
    is_noisier = others < _counted(held_out)
    sums = _added(sums, seen, jnp.asarray(noise**2), is_noisier)
    root = _root(sums, hyper.likelihood.variance)
    model = jax.block_until_ready(solved(hyper, inducing, sums, root))
    last = history[-1]
    seconds = last.seconds + time.monotonic() - began
    history.add(Record(last.step, seconds, last.objective, score=best))
    return Fitted(model, history)


def _counted(rows: Batch) -> int:
    """How many rows have a weight above 0."""
    return len(rows.x) if rows.weight is None else int((rows.weight > 0).sum())


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


class Seen(NamedTuple):
    """Rows as the score needs them: a, what it leaves of the prior's variance, r, w."""

    features: Float[Array, "M N"]
    rest: Float[Array, " N"]
    residual: Float[Array, " N"]
    weight: Float[Array, " N"]


def _read_once(
    hyper: Hyperparameters, inducing: Numbers, rows: Batch, held_out: Batch
) -> tuple[RowSums, Seen]:
    """The sums over rows, and the held-out rows."""
    z, inverse = in_floating_point(hyper, inducing), inverse_of_prior(hyper, inducing)
    x, y = jnp.asarray(held_out.x, z.dtype), jnp.asarray(held_out.y, z.dtype)
    features = lower_apply(inverse, hyper.kernel(z, x))
    rest = jnp.maximum(hyper.kernel.diag(x) - (features**2).sum(0), 0)
    weight = np.ones(len(x)) if held_out.weight is None else held_out.weight
    seen = Seen(features, rest, y - hyper.mean(x), jnp.asarray(weight, z.dtype))
    return row_sums(hyper, z, rows, inverse), seen


def _density(root: Array, sums: RowSums, seen: Seen, variance: Array | float) -> Any:
    """The mean log density of rows at a variance of the noise."""
    spread = root.T @ seen.features
    mean = spread.T @ (root.T @ sums.moment) / variance
    total = variance + seen.rest + (spread**2).sum(0)
    misfit = (seen.residual - mean) ** 2 / total
    density = -LOG_ROOT_TAU - (jnp.log(total) + misfit) / 2
    return seen.weight @ density / seen.weight.sum()


def _with_held_out(
    sums: RowSums, seen: Seen, variance: Array | float, is_noisier: bool
) -> RowSums:
    """The sums with the held-out rows.

    If nearly all other rows are inducing inputs, the noise was chosen for such rows.
    With `is_noisier`, the prior variance that the inducing inputs leave at a held-out
    row counts as noise too. Or one row would fix the function on both sides of it.
    """
    share = variance / (variance + seen.rest) if is_noisier else 1.0
    weight = seen.weight * share
    weighted = seen.features * weight[None]
    more = RowSums(weighted @ seen.features.T, weighted @ seen.residual)
    return jax.tree.map(jnp.add, sums, more)


# Only `fit` calls these: jax refuses compiler options inside another program.
_one_pass = filter_jit(_read_once, compiler_options=SHORT_RUN)
_root = filter_jit(root_of_covariance, compiler_options=SHORT_RUN)
_score = filter_jit(_density, compiler_options=SHORT_RUN)
_added = filter_jit(_with_held_out, compiler_options=SHORT_RUN)
