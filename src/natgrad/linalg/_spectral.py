"""The exponential and logarithm of a symmetric matrix, with derivatives that hold.

Where eigenvalues coincide the eigenvectors have no derivative, but the functions of the
matrix do. These are written in divided differences (Daleckii and Krein), which have a
limit there:

    Df(X)[A]     = U (f[i, j] ∘ Â) Uᵀ                    with Â = Uᵀ A U
    D²f(X)[A, B] = U (Σₖ f[i, k, j] (Âᵢₖ B̂ₖⱼ + B̂ᵢₖ Âₖⱼ)) Uᵀ

Values and both derivatives are good in forward and in reverse mode, and so is any mix
of two. The second derivative takes M steps of M² each; nothing in the library needs it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad._linear_map import tangent_by


Matrix = Float[Array, "*batch M M"]
Numbers = Float[Array, "..."]


class _Function(NamedTuple):
    """A function of a number, its divided difference, and f⁽²⁾/2!, f⁽⁴⁾/4!, f⁽⁵⁾/5!"""

    value: Callable[[Numbers], Numbers]
    difference: Callable[[Numbers, Numbers], Numbers]
    taylor: Callable[[Numbers], tuple[Numbers, ...]]
    scale: Callable[[Numbers], Numbers]


def exp_difference(a: Numbers, b: Numbers) -> Numbers:
    """(eᵃ − eᵇ)/(a − b), and eᵃ where a = b."""
    gap = jnp.abs(a - b)
    safe = jnp.where(gap == 0, 1, gap)
    return jnp.exp(jnp.maximum(a, b)) * jnp.where(gap == 0, 1, -jnp.expm1(-safe) / safe)


def log_difference(a: Numbers, b: Numbers) -> Numbers:
    """(log a − log b)/(a − b), and 1/a where a = b."""
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    ratio = (high - low) / low
    safe = jnp.where(ratio == 0, 1, ratio)
    return jnp.where(ratio == 0, 1, jnp.log1p(safe) / safe) / low


def _second_difference(f: _Function, a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    """f[a, b, c], by a series about the mean where all three are close."""
    low = jnp.minimum(jnp.minimum(a, b), c)
    high = jnp.maximum(jnp.maximum(a, b), c)
    middle = jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))
    spread = high - low
    safe = jnp.where(spread == 0, 1, spread)
    direct = (f.difference(middle, high) - f.difference(low, middle)) / safe
    mean = (a + b + c) / 3
    squares = (a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2
    cubes = (a - mean) ** 3 + (b - mean) ** 3 + (c - mean) ** 3
    second, fourth, fifth = f.taylor(mean)
    series = second + fourth * squares / 2 + fifth * cubes / 3
    close = jnp.finfo(a.dtype).eps ** 0.2
    return jnp.where(spread <= close * f.scale(mean), series, direct)


def _second_derivative(f: _Function, x: Matrix, a: Matrix, b: Matrix) -> Matrix:
    w, basis = jnp.linalg.eigh(x)
    a, b = (basis.mT @ each @ basis for each in (a, b))

    def add(total: Matrix, k: Array) -> tuple[Matrix, None]:
        at = lambda m, axis: jnp.take(m, k, axis=axis)
        weight = _second_difference(
            f, w[..., :, None], at(w, -1)[..., None, None], w[..., None, :]
        )
        term = at(a, -1)[..., :, None] * at(b, -2)[..., None, :]
        term += at(b, -1)[..., :, None] * at(a, -2)[..., None, :]
        return total + weight * term, None

    total, _ = jax.lax.scan(add, jnp.zeros_like(x), jnp.arange(x.shape[-1]))
    return basis @ total @ basis.mT


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _derivative(f: _Function, x: Matrix, change: Matrix) -> Matrix:
    w, basis = jnp.linalg.eigh(x)
    weight = f.difference(w[..., :, None], w[..., None, :])
    return basis @ (weight * (basis.mT @ change @ basis)) @ basis.mT


@_derivative.defjvp
def _(f: _Function, primals: Any, tangents: Any) -> tuple[Matrix, Matrix]:
    (x, change), (dx, dchange) = primals, tangents
    second = _second_derivative(f, x, change, dx)
    return _derivative(f, x, change), second + _derivative(f, x, dchange)


def _matrix_function(f: _Function) -> Callable[[Matrix], Matrix]:
    @jax.custom_jvp
    def function(x: Matrix) -> Matrix:
        w, basis = jnp.linalg.eigh(x)
        return (basis * f.value(w)[..., None, :]) @ basis.mT

    def forward(kept: tuple[Matrix], changes: tuple[Matrix]) -> Matrix:
        return _derivative(f, *kept, *changes)

    def backward(kept: tuple[Matrix], slope: Matrix) -> tuple[Matrix]:
        # The derivative at a symmetric matrix is its own transpose.
        return (_derivative(f, *kept, slope),)

    @function.defjvp
    def _(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
        return function(*primals), tangent_by(forward, backward, primals, tangents)

    return function


@functools.cache
def _exp(scale: float) -> Callable[[Matrix], Matrix]:
    """exp(scale · X), in terms of the eigenvalues of X itself: one decomposition serves
    all scales, because the compiler sees that it is the same."""
    power = lambda k: scale**k / math.factorial(k)
    return _matrix_function(
        _Function(
            lambda x: jnp.exp(scale * x),
            lambda a, b: scale * exp_difference(scale * a, scale * b),
            lambda x: tuple(power(k) * jnp.exp(scale * x) for k in (2, 4, 5)),
            lambda x: jnp.full_like(x, 1 / abs(scale)),
        )
    )


logm = _matrix_function(
    _Function(
        jnp.log,
        log_difference,
        lambda x: (-1 / (2 * x**2), -1 / (4 * x**4), 1 / (5 * x**5)),
        jnp.abs,
    )
)
"""log(X) of a positive definite matrix."""


def expm(matrix: Matrix, scale: float = 1.0) -> Matrix:
    """exp(scale · X) of a symmetric matrix."""
    return _exp(scale)(matrix)
