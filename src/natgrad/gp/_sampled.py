"""Many rows with Gaussian noise: hyperparameters from a sample, q from all rows.

A bound with few inducing inputs prefers smooth functions and much noise, as it pays for
what they cannot explain. The evidence of a sample does not. It learns the
hyperparameters; then the best q is one natural step away, and one pass over all rows is
enough for thousands of inducing inputs.
"""

import functools
import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Batch
from natgrad.gp._few_rows import least_noise
from natgrad.gp._parameters import Numbers
from natgrad.gp._sites import Sites, project, together
from natgrad.gp._sparse import Projection, SparseGP, marginals, prior_inverse
from natgrad.gp.exact import Hyperparameters, at_prior, solved, unit_sites
from natgrad.gp.likelihoods._rows import log_predictives
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
    weight = np.ones(len(held_out.x)) if held_out.weight is None else held_out.weight
    held_out = held_out._replace(weight=weight)
    unit, there = _one_pass(hyper, inducing, rows, held_out)
    least = float(least_noise(held_out.y - there.mean, jnp.asarray(weight)))

    def noisy(noise: float) -> Hyperparameters:
        return hyper._replace(likelihood=type(hyper.likelihood)(noise**2))

    def score(noise: float) -> float:
        if noise < least:
            return -math.inf
        return float(_score(noisy(noise), inducing, unit, there, held_out))

    noise, best = _best(score, math.sqrt(float(hyper.likelihood.variance)))
    others = _counted(rows) - len(inducing)
    is_noisier = others < _counted(held_out)
    model = _solved(noisy(noise), inducing, unit, there, held_out, is_noisier)
    model = jax.block_until_ready(model)
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


# Only `fit` calls these: jax refuses compiler options inside another program.


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def _one_pass(
    hyper: Hyperparameters, inducing: Numbers, rows: Batch, held_out: Batch
) -> tuple[Sites, Projection]:
    """What rows add to q if the variance of the noise is 1, and the held-out rows."""
    model = at_prior(hyper, inducing)
    inverse = prior_inverse(model)
    there = model.project(jnp.asarray(held_out.x, inverse.dtype), inverse)
    there = there._replace(rest=jnp.maximum(there.rest, 0))
    return unit_sites(model, rows, inverse), there


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def _score(
    hyper: Hyperparameters,
    inducing: Numbers,
    unit: Sites,
    there: Projection,
    held_out: Batch,
) -> Array:
    """The mean log density of the held-out rows."""
    model = solved(hyper, inducing, unit)
    latent = marginals(model.posterior, there)
    density = log_predictives(model.likelihood, *latent, held_out)
    weight = jnp.asarray(held_out.weight, density.dtype)
    return weight @ density / weight.sum()


@functools.partial(filter_jit, compiler_options=SHORT_RUN)
def _solved(
    hyper: Hyperparameters,
    inducing: Numbers,
    unit: Sites,
    there: Projection,
    held_out: Batch,
    is_noisier: bool,
) -> SparseGP:
    """The model that has seen the held-out rows too.

    If nearly all other rows are inducing inputs, the noise was chosen for such rows.
    With `is_noisier`, the prior variance that the inducing inputs leave at a held-out
    row counts as noise too. Or one row would fix the function on both sides of it.
    """
    y, weight = (jnp.asarray(each, there.rest.dtype) for each in held_out[1:3])
    if is_noisier:
        variance = hyper.likelihood.variance
        weight *= variance / (variance + there.rest)
    more = project(there.features, Sites(weight * (y - there.mean), weight))
    return solved(hyper, inducing, together(unit, more))
