"""A model to begin with, from rows of inputs."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad.data.source import as_array
from natgrad.gp.inducing import k_means
from natgrad.gp.kernels import Matern52
from natgrad.gp.likelihoods import AbstractLikelihood
from natgrad.gp.sparse import SparseGP


INDUCING = 200
"""How many inducing inputs there are if nothing is said."""


def start(
    x: Any, likelihood: AbstractLikelihood, inducing: int = INDUCING, seed: int = 0
) -> SparseGP:
    """A model of inputs of a size near 1, to be trained.

    Its kernel is a Matérn-5/2 with a lengthscale for each input, which begins at √D as
    in the paper; its inducing inputs are the k means of the rows.
    """
    x = np.asarray(as_array(x), float)
    x = x[:, None] if x.ndim == 1 else x
    lengthscale = np.full(x.shape[1], np.sqrt(x.shape[1]))
    z = k_means(x, min(inducing, len(x)), seed)
    return SparseGP(Matern52(lengthscale, 2.0), likelihood, jnp.asarray(z))
