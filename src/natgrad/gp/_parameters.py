"""Parameters as their users give them, made arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from natgrad.errors import InputError


Numbers = float | int | np.ndarray | np.generic | Array | Sequence[Any]


def as_floats(value: Numbers) -> Float[Array, "..."]:
    """An array of the default float type, or of its own where it has one."""
    own = getattr(value, "dtype", None)
    is_float = own is not None and jnp.issubdtype(own, jnp.floating)
    if isinstance(value, float | int | np.ndarray | np.generic):
        # A copy made by NumPy: JAX would compile a program for each shape.
        kind = jax.dtypes.canonicalize_dtype(own if is_float else float)
        return jax.device_put(np.array(value, kind))
    array = jnp.asarray(value) if is_float else jnp.asarray(value, dtype=float)
    # A conversion with a type named is strongly typed, whatever it starts from.
    return jnp.asarray(array, dtype=array.dtype)


def as_logs(name: str, value: Numbers, is_list: bool = False) -> Float[Array, "..."]:
    """The logarithm of a positive number, or of a list of them where that is meant."""
    array = as_floats(value)
    if array.ndim > is_list:
        kind = "one number or a list of them" if is_list else "one number"
        raise InputError(f"{name} has shape {list(array.shape)}; it should be {kind}")
    if not isinstance(array, Tracer):
        concrete = np.asarray(array)
        if not (np.isfinite(concrete) & (concrete > 0)).all():
            raise InputError(f"{name} is {value}; it should be positive and finite")
    return jnp.log(array)


def check_columns(name: str, weight: Array, x: Array) -> None:
    """Raises unless a parameter is one number, or one for each column."""
    if weight.ndim and weight.shape != x.shape[1:]:
        raise InputError(
            f"{name} has shape {list(weight.shape)}, but x has {x.shape[1]} columns; "
            f"it should be one number, or one for each column"
        )


def form(module: object) -> object:
    """What modules must have in common to be stacked, None where they cannot be."""
    leaves, structure = jax.tree.flatten(module)
    if not all(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
