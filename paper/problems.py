"""The paper's models and data: what is the same in all its experiments."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natgrad import gp
from natgrad.data import Batch
from natgrad.gp import kernels, likelihoods
from natgrad.gp.inducing import k_means
from paper.tables import Split, load, split, with_scaled_inputs, with_scaled_targets


INDUCING = 100
LEVELS = 51
"""The targets of naval have so many values, evenly spaced."""

# The paper names no values for the likelihoods; these are the defaults of GPflow, in
# which it was written.
LIKELIHOODS: dict[str, Callable[[], Any]] = {
    "Gaussian": lambda: likelihoods.Gaussian(1.0),
    "Student-t": lambda: likelihoods.StudentT(1.0, 3.0),
    "Bernoulli": likelihoods.Bernoulli,
    "beta": lambda: likelihoods.Beta(1.0),
    "ordinal": lambda: likelihoods.Ordinal(np.linspace(-2, 2, LEVELS - 1), 1.0),
    "robust-max": lambda: likelihoods.RobustMax(10),
}


class Problem(NamedTuple):
    """A model to train, the rows to train it on, and the rows to test it on."""

    model: gp.SparseGP
    data: Batch
    test: Batch


@functools.lru_cache(maxsize=1)
def problem(
    name: str, likelihood: str, number: int, limit: int | None = None
) -> Problem:
    """A split of a data set, scaled, and the model that the paper begins with.

    Matérn-5/2 with one lengthscale √D and variance 2 (10 for mnist), 100 inducing
    inputs by k-means, q of mean 0 and covariance I in whitened coordinates. Of a large
    set the first rows may do, so many to learn from and so many to test on. The runs
    of a figure that share a problem follow each other, and it is kept for them.
    """
    x, y = load(name)
    rows = split(name, np.asarray(x, float), np.asarray(y, float), number)
    rows = Split(*(part[:limit] for part in rows))
    rows = _with_targets(rows, likelihood)
    if name == "mnist":
        rows = rows._replace(x=rows.x / 255, x_test=rows.x_test / 255)
    else:
        rows = with_scaled_inputs(rows)
    kernel = kernels.Matern52(
        np.sqrt(rows.x.shape[1]), 10.0 if name == "mnist" else 2.0
    )
    inducing = k_means(rows.x, INDUCING, number)
    model = gp.SparseGP(kernel, LIKELIHOODS[likelihood](), jnp.asarray(inducing))
    batch = lambda x, y: Batch(jnp.asarray(x), jnp.asarray(y))
    return Problem(model, batch(rows.x, rows.y), batch(rows.x_test, rows.y_test))


def _with_targets(rows: Split, likelihood: str) -> Split:
    if likelihood in ("Gaussian", "Student-t"):
        return with_scaled_targets(rows)
    if likelihood not in ("beta", "ordinal"):
        return rows
    low, high = rows.y.min(), rows.y.max()
    share = lambda y: (y - low) / (high - low)
    if likelihood == "ordinal":
        level = lambda y: np.round((LEVELS - 1) * share(y))
        return rows._replace(y=level(rows.y), y_test=level(rows.y_test))
    # The ends of the interval have no density.
    inside = lambda y: np.clip(share(y), 1e-6, 1 - 1e-6)
    return rows._replace(y=inside(rows.y), y_test=inside(rows.y_test))
