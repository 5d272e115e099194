"""How many inducing inputs a model needs."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad._runtime.compiler import SHORT_RUN
from natgrad._runtime.programs import filter_jit
from natgrad.data._batch import Batch
from natgrad.data._batches import padded, some_rows
from natgrad.errors import InputWarning
from natgrad.gp._sparse import SparseGP
from natgrad.gp.inducing import MOST, k_means
from natgrad.gp.likelihoods._rows import expected_log_probs


__all__ = ["ENOUGH", "choose_num_inducing", "unseen"]

ENOUGH = 0.004
"""Nats per row that more inducing inputs may still be worth."""

SAMPLE = 2048
"""Rows on which the gain is measured."""


@filter_jit
def unseen(model: SparseGP, other: SparseGP, batch: Batch) -> Float[Array, ""]:
    """What the inducing inputs of `other` cost the bound of a model, per row.

    It is what would be gained if the prior variance that they leave at each row, and
    that no data can take away, were zero.
    """
    x = jnp.asarray(batch.x)
    mean, var = model.marginals(x)
    known = jnp.maximum(var - jnp.broadcast_to(model.project(x).rest, var.shape), 0)
    rest = jnp.broadcast_to(jnp.maximum(other.project(x).rest, 0), var.shape)
    expected = lambda var: expected_log_probs(model.likelihood, mean, var, batch.y)
    gain = expected(known) - expected(known + rest)
    if batch.weight is None:
        return gain.mean()
    weight = jnp.asarray(batch.weight, gain.dtype)
    return weight @ gain / weight.sum()


# Not for use in another program: jax refuses compiler options there.
_unseen = filter_jit(lambda *asked: unseen(*asked), compiler_options=SHORT_RUN)


def moved(model: SparseGP, x: Any, inducing: int, seed: int = 0) -> SparseGP:
    """The same hyperparameters, with so many inducing inputs, and q at the prior.

    They are means of the rows in units of the lengthscales, if there are such.
    """
    x = np.asarray(x)
    scale = np.asarray(getattr(model.kernel, "lengthscale", 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of fewer distinct rows
        z = k_means(x / scale, min(inducing, len(x)), seed) * scale
    return SparseGP(model.kernel, model.likelihood, z, mean=model.mean)


def choose_num_inducing(model: SparseGP, table: Batch, seed: int = 0) -> SparseGP:
    """A model with the same hyperparameters and as many inducing inputs as help.

    `model` is a trained one. natgrad doubles its inducing inputs until more would gain
    at most 0.004 nats per row, or there would be more than 200. q of the new model is
    at the prior: train it again. On batches, twice as many inducing inputs took five
    times as long and predicted no better.

    >>> coarse = gp.SparseGP(model.kernel, model.likelihood, x[::25])
    >>> finer = gp.choose_num_inducing(coarse, natgrad.data.Batch(x, y))
    >>> len(coarse.inducing), len(finer.inducing)
    (2, 8)
    """
    total = len(table.x)
    some = np.random.default_rng(seed).permutation(total)[:SAMPLE]
    batch = padded(some_rows(table, some))
    best = model
    while float(_unseen(model, best, batch)) > ENOUGH:
        size = min(2 * len(best.inducing), total)
        if size == len(best.inducing) or size > MOST:
            break
        grown = moved(model, table.x, size, seed)
        if len(grown.inducing) == len(best.inducing):  # there are no more to be had
            break
        best = grown
    return best
