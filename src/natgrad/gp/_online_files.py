"""The state of a model that keeps learning, as one file; it holds rows."""

import math
import os
from typing import Any

import jax

from natgrad import _codec as codec
from natgrad.errors import CorruptFileError, InputError
from natgrad.gp import _files as files
from natgrad.gp._carried import sites_of
from natgrad.gp._fit import check
from natgrad.gp._online import Online


def save(
    online: Online, path: str | os.PathLike[str], metadata: dict[str, Any]
) -> None:
    """Writes all that `load` needs, atomically."""
    FORMAT.write(path, online, metadata)


def load(path: str | os.PathLike[str]) -> tuple[Online, dict[str, Any]]:
    """What was saved, and the metadata with it."""
    try:
        return FORMAT.read(path)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; delete it to begin anew") from None


def _check(online: Online) -> None:
    files.FORMAT.check(online.model)
    shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree)
    like = jax.eval_shape(lambda: sites_of(online.model))
    if shapes(online.old) != shapes(like):
        raise InputError("its sites are not those of its model")
    numbers = (online.num_data, online.lost, online.count, online.learned_at)
    if not all(math.isfinite(n) and n >= 0 for n in (*numbers, online.unsampled)):
        raise InputError("a number is negative or not finite")
    if online.rows is not None:
        check(online.model, online.rows, "rows")
        if len(online.keys) != len(online.rows.x):
            raise InputError("keys and rows differ in number")


FORMAT = codec.Format(
    "natgrad.gp.Online",
    "a state of natgrad update",
    "online",
    Online,
    {**files.CLASSES, "Online": Online},
    _check,
)
