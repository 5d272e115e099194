"""A model as one file: its classes by name, its numbers as arrays.

A file names classes out of a closed list and says what their fields are. Reading one
makes nothing else, and imports and calls nothing by a name in the file; what is made
has passed the checks of its constructor, as if a user had given its values.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from natgrad import _codec as codec, _container as container, linalg
from natgrad._runtime.programs import filter_jit
from natgrad._text import brief
from natgrad.errors import CorruptFileError, InputError
from natgrad.families import gaussian
from natgrad.gp import kernels, likelihoods, means
from natgrad.gp._fit import check
from natgrad.gp._online import Online
from natgrad.gp._sites import to_sites
from natgrad.gp._sparse import SparseGP
from natgrad.gp.kernels._base import Product, Sum
from natgrad.gp.likelihoods._calibrated import Calibrated
from natgrad.gp.likelihoods._discrete import FixedEdges, LearnedEdges


CLASSES = codec.registered(kernels, likelihoods, means, gaussian, linalg) | {
    "SparseGP": SparseGP,
    "kernels.Sum": Sum,
    "kernels.Product": Product,
    "likelihoods.Calibrated": Calibrated,
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
    return q.is_inside().all() & jnp.isfinite(q.covariance()).all()


FORMAT = codec.Format(
    "natgrad.gp.SparseGP", "a model", "model", SparseGP, CLASSES, _check
)


# The state of an online model


def save_online(
    online: Online, path: str | os.PathLike[str], metadata: dict[str, Any]
) -> None:
    """Writes all that `load` needs, atomically."""
    ONLINE.write(path, online, metadata)


def load_online(path: str | os.PathLike[str]) -> tuple[Online, dict[str, Any]]:
    """What was saved, and the metadata with it."""
    try:
        return ONLINE.read(path)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; delete it to begin anew") from None


def _check_online(online: Online) -> None:
    _check(online.model)
    shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree)
    like = jax.eval_shape(lambda: to_sites(online.model))
    if shapes(online.sites) != shapes(like):
        raise InputError("its sites are not those of its model")
    numbers = (online.num_data, online.lost, online.count, online.learned_at)
    numbers = (*numbers, online.unsampled, abs(online.shift))
    if not all(math.isfinite(n) and n >= 0 for n in numbers):
        raise InputError("a number is negative or not finite")
    if online.rows is not None:
        check(online.model, online.rows, "rows")
        if len(online.keys) != len(online.rows.x):
            raise InputError("keys and rows differ in number")


ONLINE = codec.Format(
    "natgrad.gp.Online",
    "a state of natgrad update",
    "online",
    Online,
    {**CLASSES, "Online": Online},
    _check_online,
)
