"""An initial model, from rows of inputs, and how many inducing inputs it needs."""

import dataclasses
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad._runtime.programs import SHORT_RUN, filter_jit
from natgrad.data._batches import Batch, as_array, padded, some_rows
from natgrad.errors import InputError, InputWarning
from natgrad.gp._sparse import SparseGP
from natgrad.gp.inducing import LEAST, MOST, ROWS_EACH, SAMPLE, k_means
from natgrad.gp.kernels import Matern52
from natgrad.gp.likelihoods import AbstractLikelihood
from natgrad.gp.likelihoods._rows import expected_log_probs


__all__ = ["ENOUGH", "choose_num_inducing", "initialize", "unseen"]

ENOUGH = 0.004
"""Nats per row that more inducing inputs may still be worth."""

MEASURED = 2048
"""Rows on which the gain is measured."""


def initialize(
    x: object,
    likelihood: Any,
    num_inducing: int | None = None,
    seed: int = 0,
    *,
    kernel: Any = None,
    mean: Any = None,
) -> SparseGP:
    """An initial model for inputs of a size near 1.

    The default kernel is a Matérn-5/2 with a lengthscale for each input, which starts
    at √D as in the paper. The inducing inputs are the k-means centres of the rows: by
    default 100 for up to 2,000 rows, rising to 200 at 4,000. `kernel` and `mean`
    replace the default kernel and the zero mean.

    Raises:
        InputError: If x is not rows by columns or not finite, or if `likelihood` is
            not a likelihood.

    >>> model = gp.initialize(x, gp.likelihoods.Gaussian(0.01), num_inducing=8)
    >>> model.inducing.shape
    (8, 1)
    >>> print(model.kernel.lengthscale)
    [1.]
    """
    if not isinstance(likelihood, AbstractLikelihood):
        raise InputError(
            f"the likelihood is {likelihood!r}; it should be one of those in "
            "natgrad.gp.likelihoods, such as Gaussian()"
        )
    x = np.asarray(as_array(x), float)
    x = x[:, None] if x.ndim == 1 else x
    if kernel is None:
        kernel = Matern52(np.full(x.shape[1], np.sqrt(x.shape[1])), 2.0)
    if num_inducing is None:
        some = x[:: max(1, len(x) // SAMPLE)]  # a table may be sorted
        distinct = len(np.unique(some, axis=0))
        num_inducing = min(max(len(x) // ROWS_EACH, LEAST), MOST, distinct)
    z = k_means(x, min(num_inducing, len(x)), seed)
    return SparseGP(kernel, likelihood, z, mean=mean)


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
    expected = lambda var: expected_log_probs(model.likelihood, mean, var, batch)
    gain = expected(known) - expected(known + rest)
    if batch.weight is None:
        return gain.mean()
    weight = jnp.asarray(batch.weight, gain.dtype)
    return weight @ gain / weight.sum()


# Not for use in another program: jax refuses compiler options there.
_unseen = filter_jit(lambda *asked: unseen(*asked), compiler_options=SHORT_RUN)


def with_inducing(model: SparseGP, x: object, inducing: int, seed: int = 0) -> SparseGP:
    """The same hyperparameters, with so many inducing inputs, and q at the prior.

    They are means of the rows in units of the lengthscales, if there are such.
    """
    x = np.asarray(x)
    scale = np.asarray(getattr(model.kernel, "lengthscale", 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of fewer distinct rows
        z = k_means(x / scale, min(inducing, len(x)), seed) * scale
    return dataclasses.replace(model, inducing=z, posterior=None)


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
    some = np.random.default_rng(seed).permutation(total)[:MEASURED]
    batch = padded(some_rows(table, some))
    best = model
    while float(_unseen(model, best, batch)) > ENOUGH:
        size = min(2 * len(best.inducing), total)
        if size == len(best.inducing) or size > MOST:
            break
        grown = with_inducing(model, table.x, size, seed)
        if len(grown.inducing) == len(best.inducing):  # there are no more to be had
            break
        best = grown
    return best
