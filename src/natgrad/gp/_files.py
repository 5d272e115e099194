"""A model as one file: its classes by name, its numbers as arrays.

A file names classes out of a closed list and says what their fields are. Reading one
makes nothing else, and imports and calls nothing by a name in the file; what is made
has passed the checks of its constructor, as if a user had given its values.
"""

import os
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from natgrad import _codec as codec, _container as container, linalg
from natgrad._runtime.programs import filter_jit
from natgrad._text import brief
from natgrad.errors import InputError
from natgrad.families import gaussian
from natgrad.gp import kernels, likelihoods, means
from natgrad.gp._sparse import SparseGP
from natgrad.gp.kernels._base import Product, Sum
from natgrad.gp.likelihoods._discrete import FixedEdges, LearnedEdges


CLASSES = codec.registered(kernels, likelihoods, means, gaussian, linalg) | {
    "SparseGP": SparseGP,
    "kernels.Sum": Sum,
    "kernels.Product": Product,
    "likelihoods.FixedEdges": FixedEdges,
    "likelihoods.LearnedEdges": LearnedEdges,
}
"""The classes that a file may have, by their names in it."""


def save(model: SparseGP, path: str | os.PathLike[str]) -> None:
    """Writes a model to one file, atomically.

    natgrad saves a class of your own by its name; pass the class to `load` as `custom`.
    The same model gives the same bytes.

    Raises:
        InputError: If a part of the model cannot be saved.
        CheckpointError: If the file cannot be written.

    >>> gp.save(model, "model.natgrad")
    >>> gp.load("model.natgrad").inducing.shape
    (8, 1)
    """
    FORMAT.write(path, model)


def load(
    path: str | os.PathLike[str],
    custom: Mapping[str, type] | None = None,
    expect_sha256: str | None = None,
    max_bytes: int = container.MAX_BYTES,
) -> SparseGP:
    """Loads a model that this version of natgrad saved.

    `custom` maps names to classes of your own, such as `{"MyKernel": MyKernel}`.
    `expect_sha256` is the hash of the whole file, from a source you trust. Without it
    the file may come from anyone, but loading runs no code from it. natgrad refuses
    files larger than `max_bytes`.

    Raises:
        CorruptFileError: If the file is damaged or not what it claims to be.
        IncompatibleFileError: If this version or setup of natgrad cannot use it.

    >>> gp.save(model, "model.natgrad")
    >>> type(gp.load("model.natgrad").likelihood).__name__
    'Gaussian'
    """
    return FORMAT.read(path, custom, expect_sha256, max_bytes)[0]


def _check(model: SparseGP) -> None:
    """Raises unless the parts of a model fit together."""
    size, latents = len(model.inducing), model.likelihood.latents
    try:
        # A user's own kernel may leave the promotion of types and ranks to JAX.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            jax.eval_shape(model.kernel, model.inducing, model.inducing)
        shape = jax.eval_shape(model.mean, model.inducing).shape
        is_sound = _is_sound(model.posterior)
    except Exception as error:  # of arrays that do not fit, or of a user's own class
        raise InputError(f"its model does not fit together: {brief(error)}") from error
    if shape not in ((size,), (latents, size)):
        raise InputError(
            f"model.mean is of shape {list(shape)} at {size} rows; the likelihood has "
            f"{latents or 'one'} latent function(s)"
        )
    if not is_sound:
        raise InputError("model.posterior has no finite positive definite covariance")


@filter_jit
def _is_sound(q: gaussian.AbstractGaussian) -> jax.Array:
    return q.is_inside().all() & jnp.isfinite(q.factor()).all()


FORMAT = codec.Format(
    "natgrad.gp.SparseGP", "a model", "model", SparseGP, CLASSES, _check
)
