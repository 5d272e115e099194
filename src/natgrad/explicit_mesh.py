"""Matrices that are cut over a mesh with explicit axes, for which JAX has no rules."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AxisType

from natgrad.errors import InputError


Function = TypeVar("Function", bound=Callable[..., Any])


def on_automatic_axes(function: Function) -> Function:
    """A function that refuses matrices cut over explicit axes, and says what to do.

    JAX 0.10 has no sharding rules for factorizations, triangular solves and maps over a
    batch, and says of each something else.
    """

    @functools.wraps(function)
    def called(matrix: Any, *rest: Any, **options: Any) -> Any:
        sharding = jax.typeof(matrix).sharding
        explicit = set(_explicit(sharding.mesh))
        axes = [axis for axis in _flat(sharding.spec) if axis in explicit]
        if axes:
            raise InputError(
                f"matrices are cut over {', '.join(map(repr, axes))}, an explicit axis "
                "of a mesh, where JAX cannot factorize them; make the mesh with "
                "jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,)), or call "
                "natgrad inside of jax.sharding.auto_axes"
            )
        return function(matrix, *rest, **options)

    return called  # type: ignore[return-value]


def _explicit(mesh: Any) -> list[str]:
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return [name for name, kind in pairs if kind == AxisType.Explicit]


def _flat(spec: Any) -> list[str]:
    """The names of a specification, whose entries are names or tuples of them."""
    entries = [each if isinstance(each, tuple) else (each,) for each in spec]
    return [name for entry in entries for name in entry if isinstance(name, str)]
