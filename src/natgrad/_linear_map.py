"""Derivatives whose transpose is written out, in forward and in reverse mode.

`jax.custom_vjp` lets one write the backward pass, and loses forward mode and second
derivatives with it. Here a rule of `jax.custom_jvp` writes the tangent and its
transpose: reverse mode runs the transpose, forward mode the tangent, and both can be
differentiated again.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array


Arrays = tuple[Any, ...]
T = TypeVar("T")


class _Map(NamedTuple):
    """A linear map of arrays that depends on others, which are kept; its transpose."""

    forward: Callable[[Arrays, Arrays], Arrays]
    backward: Callable[[Arrays, Arrays], Arrays]

    def __call__(self, kept: Any, changes: Any) -> list[Any]:
        kept, changes = tuple(kept), tuple(changes)
        avals = tuple(jax.make_jaxpr(self.forward)(kept, changes).out_avals)
        options = {"linear": self, "number": len(kept), "avals": avals}
        return _linear_p.bind(*kept, *changes, **options)


class _Single(NamedTuple):
    """A function that returns one array, as one that returns a tuple."""

    function: Callable[[Arrays, Arrays], Any]

    def __call__(self, kept: Arrays, changes: Arrays) -> Arrays:
        return (self.function(kept, changes),)


class _Unpacked(NamedTuple):
    """A function of one array, as one of a tuple."""

    function: Callable[[Arrays, Any], Arrays]

    def __call__(self, kept: Arrays, slopes: Arrays) -> Arrays:
        return self.function(kept, slopes[0])


class _Batched(NamedTuple):
    """A function of many at once; not all have arrays of their own that are kept."""

    function: Callable[[Arrays, Arrays], Arrays]
    axes: tuple[int | None, ...]

    def __call__(self, kept: Arrays, changes: Arrays) -> Arrays:
        return jax.vmap(self.function, (self.axes, 0))(kept, changes)


def tangent_by(
    forward: Callable[[Any, Any], Array],
    backward: Callable[[Any, Array], Arrays],
    kept: Arrays,
    changes: Arrays,
) -> Array:
    """forward(kept, changes), which is linear in the changes.

    `backward(kept, slope)` is its transpose: the slopes at the changes. Both should be
    functions of a module and not of a call, so that programs are compiled once.
    """
    return _Map(_Single(forward), _Unpacked(backward))(kept, changes)[0]


def forward_only(tree: T, reason: str) -> T:
    """The same tree; reverse mode through it is refused, and the reason given.

    A loop whose length is not known has no reverse mode, and what JAX says of it does
    not name the function that holds it.
    """
    is_number = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    marked = lambda leaf: _forward_only(reason, leaf) if is_number(leaf) else leaf
    return jax.tree.map(marked, tree)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _forward_only(reason: str, array: Array) -> Array:
    return array


@_forward_only.defjvp
def _(reason: str, primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    return primals[0], tangent_by(_same, _Refusal(reason), (), tangents)


def _same(kept: Arrays, changes: Arrays) -> Any:
    return changes[0]


class _Refusal(NamedTuple):
    """A transpose that there is not."""

    reason: str

    def __call__(self, kept: Arrays, slope: object) -> Arrays:
        raise ValueError(self.reason)


# A primitive, because JAX drops a custom rule inside of another where it linearizes.

_linear_p = Primitive("linear_map")
_linear_p.multiple_results = True


def _evaluate(*arrays: Any, linear: _Map, number: int, avals: Arrays) -> list[Any]:
    return list(linear.forward(arrays[:number], arrays[number:]))


def _jvp(primals: Any, tangents: Any, *, linear: _Map, number: int, avals: Arrays):
    kept, changes = tuple(primals[:number]), tuple(primals[number:])
    kept_tangents, change_tangents = tangents[:number], tangents[number:]
    is_zero = lambda tangent: isinstance(tangent, ad.Zero)
    parts = []
    if not all(map(is_zero, change_tangents)):
        parts.append(linear(kept, map(ad.instantiate_zeros, change_tangents)))
    if not all(map(is_zero, kept_tangents)):
        moved = tuple(map(ad.instantiate_zeros, kept_tangents))
        of_kept = lambda *kept: linear.forward(kept, changes)
        parts.append(list(jax.jvp(of_kept, kept, moved)[1]))
    terms = zip(*parts, strict=True)
    return linear(kept, changes), [sum(more, first) for first, *more in terms]


def _transpose(slopes: Any, *arrays: Any, linear: _Map, number: int, avals: Arrays):
    kept, changes = arrays[:number], arrays[number:]
    back = _Map(linear.backward, linear.forward)
    found = back(kept, map(ad.instantiate_zeros, slopes))
    pairs = zip(found, changes, strict=True)
    wanted = [
        slope if ad.is_undefined_primal(change) else None for slope, change in pairs
    ]
    return [None] * number + wanted


def _batch(arrays: Any, axes: Any, *, linear: _Map, number: int, avals: Arrays):
    pairs = list(zip(arrays, axes, strict=True))
    size = next(array.shape[axis] for array, axis in pairs if axis is not None)
    lead = lambda array, axis: array if axis is None else jnp.moveaxis(array, axis, 0)
    arrays = [lead(*pair) for pair in pairs]
    own = tuple(None if axis is None else 0 for axis in axes[:number])
    # All changes have the axis, or a slope would have to be summed over it.
    changes = [
        jnp.broadcast_to(array, (size, *array.shape)) if axis is None else array
        for array, axis in zip(arrays[number:], axes[number:], strict=True)
    ]
    many = _Map(_Batched(linear.forward, own), _Batched(linear.backward, own))
    found = many(arrays[:number], changes)
    return found, [0] * len(found)


_linear_p.def_impl(_evaluate)
_linear_p.def_abstract_eval(lambda *_, linear, number, avals: list(avals))
mlir.register_lowering(_linear_p, mlir.lower_fun(_evaluate, multiple_results=True))
ad.primitive_jvps[_linear_p] = _jvp
ad.primitive_transposes[_linear_p] = _transpose
batching.primitive_batchers[_linear_p] = _batch
