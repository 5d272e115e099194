"""An initial model, from rows of inputs."""

from typing import Any

import numpy as np

from natgrad.data._batches import as_array
from natgrad.errors import InputError
from natgrad.gp._sparse import SparseGP
from natgrad.gp.inducing import LEAST, MOST, ROWS_EACH, SAMPLE, k_means
from natgrad.gp.kernels import Matern52
from natgrad.gp.likelihoods import AbstractLikelihood


def initialize(
    x: Any,
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
