"""Factors and solves of matrices that are cut over a mesh with explicit axes.

There the type of an array says how it is cut, and JAX 0.10 has no such rule for
factorizations, triangular solves and maps over a batch. They run with automatic axes,
for which the compiler decides, and what comes out is cut as what went in.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec


Function = TypeVar("Function", bound=Callable[..., Any])


def on_automatic_axes(function: Function) -> Function:
    """A function of matrices, whose result is cut as the first of them that is."""

    @functools.wraps(function)
    def called(*matrices: Any, **options: object) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if AxisType.Explicit not in mesh.axis_types:
            return function(*matrices, **options)
        bound = functools.partial(function, **options)
        specs = [jax.typeof(each).sharding.spec for each in matrices]
        cut = next((spec for spec in specs if any(spec)), specs[0])
        sharding = NamedSharding(mesh, PartitionSpec(*cut))
        return jax.sharding.auto_axes(bound, out_sharding=sharding)(*matrices)

    return cast(Function, called)
