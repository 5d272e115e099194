"""Inner products and distances of all pairs of points, and functions of them."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float


Rows = Float[Array, "N D"]
Others = Float[Array, "M D"]
Gram = Float[Array, "N M"]
Weight = Float[Array, ""] | Float[Array, " D"]


@jax.custom_jvp
def _inner(x: Rows, z: Others, weight: Array | None) -> Gram:
    return x @ _scaled(z, weight).mT


def _inner_jvp(primals, tangents):
    # One product for each set of points that moves, and none for the weight when one
    # does: the weight's change rides on the points'. In reverse these are the products
    # slope @ z and slopeᵀ @ x; the barrier keeps the second from being a product with
    # a transposed left operand, which is several times slower on a CPU.
    x, z, weight = primals
    dx, dz, dweight = (None if _is_zero(t) else t for t in tangents)
    parts = []
    left = None if dx is None else _scaled(dx, weight)
    right = None if dz is None else _scaled(dz, weight)
    if dweight is not None and right is None and left is not None:
        left = left + _scaled(x, dweight)
    elif dweight is not None:
        right = _scaled(z, dweight) if right is None else right + _scaled(z, dweight)
    if left is not None:
        parts.append(left @ z.mT)
    if right is not None:
        parts.append(lax.optimization_barrier(right @ x.mT).mT)
    return _inner(x, z, weight), sum(parts[1:], parts[0])


_inner.defjvp(_inner_jvp, symbolic_zeros=True)


@jax.custom_jvp
def _inner_within(x: Rows, weight: Array | None) -> Array:
    product = x @ _scaled(x, weight).mT
    return (product + product.mT) / 2


def _inner_within_jvp(primals, tangents):
    # Both operands move together, so that half the change tells the whole.
    x, weight = primals
    dx, dweight = (None if _is_zero(t) else t for t in tangents)
    change = None if dx is None else _scaled(dx, weight)
    if dweight is not None:
        half = _scaled(x, dweight) / 2
        change = half if change is None else change + half
    half = change @ x.mT
    return _inner_within(x, weight), half + half.mT


_inner_within.defjvp(_inner_within_jvp, symbolic_zeros=True)


def _is_zero(tangent: object) -> bool:
    return tangent is None or isinstance(tangent, SymbolicZero)


def _scaled(x: Array, weight: Array | None) -> Array:
    return x if weight is None else x * weight[None, :]


def _norms(x: Array, weight: Array | None) -> Array:
    return (x**2).sum(1) if weight is None else x**2 @ weight


def inner(x: Rows, z: Others, weight: Weight) -> Gram:
    """Σ w x z over the inputs, exactly symmetric where `x is z`."""
    each = weight if weight.ndim else None
    product = _inner_within(x, each) if x is z else _inner(x, z, each)
    return product if weight.ndim else weight * product


def squared_distance(x: Rows, z: Others, weight: Weight) -> Gram:
    """Σ w (x − z)² over the inputs, by one matrix product.

    Where `x is z`, the very same object, it is exactly symmetric and zero on the
    diagonal. The derivative takes one product for each set of points that moves.
    """
    # Distances do not change with a shift, but digits are lost to a large mean. It is
    # that of the first points, the inducing inputs: no row of a batch costs another's.
    centre = lax.stop_gradient(x.mean(0, keepdims=True))
    each = weight if weight.ndim else None
    same = x is z
    x, z = x - centre, z - centre
    norms = _norms(x, each)[:, None]
    others = norms.mT if same else _norms(z, each)[None, :]
    product = _inner_within(x, each) if same else _inner(x, z, each)
    squared = norms + others - 2 * product
    if same:
        squared = jnp.where(jnp.eye(len(x), dtype=bool), 0, squared)
    # The clip takes off rounding errors alone, and so leaves the derivatives alone.
    here = lax.stop_gradient(squared)
    squared = jnp.where(here < 0, squared - here, squared)
    return squared if weight.ndim else weight * squared


# As functions of s = r², the derivative of each Matérn function is a multiple of the
# one before it: no division by r, and no digits lost near zero.


@jax.custom_jvp
def matern12(s: Gram) -> Gram:
    """exp(−√s), its derivative taken as zero at its cusp."""
    return jnp.exp(-jnp.sqrt(s))


@matern12.defjvp
def _(primals, tangents):
    (s,), (ds,) = primals, tangents
    value = matern12(s)
    r = jnp.sqrt(jnp.where(s > 0, s, 1))
    return value, jnp.where(s > 0, value / r, 0) * (-ds / 2)


@jax.custom_jvp
def matern32(s: Gram) -> Gram:
    """(1 + √s) exp(−√s)"""
    r = jnp.sqrt(s)
    return (1 + r) * jnp.exp(-r)


@matern32.defjvp
def _(primals, tangents):
    (s,), (ds,) = primals, tangents
    return matern32(s), matern12(s) * (-ds / 2)


@jax.custom_jvp
def matern52(s: Gram) -> Gram:
    """(1 + √s + s/3) exp(−√s)"""
    r = jnp.sqrt(s)
    return (1 + r + s / 3) * jnp.exp(-r)


@matern52.defjvp
def _(primals, tangents):
    (s,), (ds,) = primals, tangents
    return matern52(s), matern32(s) * (-ds / 6)
