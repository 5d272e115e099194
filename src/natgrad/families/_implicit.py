"""Families known by their log normalizer alone.

Their author writes A(θ) and the coordinates. Then η = ∇A(θ), and θ(η) is where the
convex function A(θ) − ⟨θ, η⟩ is least: a damped Newton search, whose derivative is that
of the root and not of the search. The Hessian of A, which is the Fisher matrix, is only
ever multiplied.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from natgrad.families._base import AbstractDistribution, T, inner


if TYPE_CHECKING:
    I = TypeVar("I", bound="AbstractImplicit[Any]")
else:
    I = TypeVar("I")


class AbstractImplicit(AbstractDistribution[T]):
    """A distribution whose η(θ) and θ(η) follow from its log normalizer."""

    def expectation(self) -> T:
        return self._expectation_at(self.natural())

    def at_expectation(self: I, eta: T) -> I:
        return self.at_natural(self._natural_at(eta))

    def slope(self, grad: Any) -> T:
        # The search for θ(η) ends where it begins; only its derivative is needed.
        theta = self.natural()
        (at_theta,) = jax.vjp(self.at_natural, theta)[1](grad)
        _, hessian = jax.linearize(self._expectation_at, theta)
        return _solve(hessian, at_theta, self.log_normalizer(theta))

    def _expectation_at(self, theta: T) -> T:
        """∇A(θ)"""
        return jax.grad(lambda theta: self.log_normalizer(theta).sum())(theta)

    def _natural_at(self, eta: T) -> T:
        """θ(η), sought from the θ of `self`."""

        def residual(theta: T) -> T:
            return jax.tree.map(jnp.subtract, self._expectation_at(theta), eta)

        def solve(_: Callable[[T], T], start: T) -> T:
            return _newton(self.log_normalizer, residual, eta, start)

        def tangent_solve(hessian: Callable[[T], T], change: T) -> T:
            like = self.log_normalizer(self.natural())
            return _solve(hessian, change, like)

        start = lax.stop_gradient(self.natural())
        return lax.custom_root(residual, start, solve, tangent_solve)


class _Search(NamedTuple):
    theta: Any
    steps: Array
    done: Array


_State = tuple[Array, T, T, T, Array]
"""Step, x, residual, direction and energy of conjugate gradients."""


def _newton(
    log_normalizer: Callable[[T], Array], residual: Callable[[T], T], eta: T, start: T
) -> T:
    """Where A(θ) − ⟨θ, η⟩ is least, for each member of a batch."""
    like = log_normalizer(start)
    eps = jnp.finfo(like.dtype).eps

    def bound(theta: T) -> Array:
        return log_normalizer(theta) - inner(theta, eta, like)

    def body(search: _Search) -> _Search:
        theta = search.theta
        slope, hessian = jax.linearize(residual, theta)
        direction = _solve(hessian, slope, like)
        decrement = inner(direction, slope, like)
        here = bound(theta)

        def moved(size: Array) -> T:
            return jax.tree.map(lambda t, d: t - _per(size, t) * d, theta, direction)

        def is_bad(size: Array) -> Array:
            # Close to the root rounding hides the decrease, and no test is needed.
            there = bound(moved(size))
            falls = (there <= here - size * decrement / 4) | (decrement < 1e-3)
            return ~(jnp.isfinite(there) & falls) & (size > eps)

        size = lax.while_loop(
            lambda size: is_bad(size).any(),
            lambda size: jnp.where(is_bad(size), size / 2, size),
            jnp.ones_like(here),
        )
        size = jnp.where(search.done | (size <= eps), 0, size)
        done = search.done | ~(decrement > eps) | (size == 0)
        return _Search(moved(size), search.steps + 1, done)

    start_search = _Search(start, jnp.zeros((), int), jnp.zeros(like.shape, bool))
    going = lambda search: ~search.done.all() & (search.steps < 200)
    return lax.while_loop(going, body, start_search).theta


def _solve(hessian: Callable[[T], T], right: T, like: Array) -> T:
    """x with hessian(x) = right, for each member of a batch.

    A family of few statistics is solved in as many steps of conjugate gradients; the
    diagonal takes out the units of the statistics, which differ by many powers of ten.
    """
    size = sum(leaf.size // max(like.size, 1) for leaf in jax.tree.leaves(right))
    least = jnp.finfo(like.dtype).eps ** 2

    def search(hessian: Callable[[T], T], right: T) -> T:
        diagonal = _diagonal(hessian, right, like)
        scaled = lambda r: jax.tree.map(jnp.divide, r, diagonal)
        return conjugate_gradients(hessian, scaled, right, like, 2 * size + 10, least)

    return lax.custom_linear_solve(hessian, right, search, symmetric=True)


def conjugate_gradients(
    product: Callable[[T], T],
    precondition: Callable[[T], T],
    right: T,
    like: Array,
    most: int,
    least: Any,
) -> T:
    """x with product(x) = right, for each member of a batch, by conjugate gradients.

    They end after `most` steps, or at the share `least` of the energy at the start.
    """
    first = precondition(right)

    def going(state: _State[T]) -> Array:
        step, *_, energy = state
        return (energy > least * start).any() & (step < most)

    def body(state: _State[T]) -> _State[T]:
        step, x, r, p, energy = state
        image = product(p)
        curvature = inner(p, image, like)
        alpha = jnp.where((curvature > 0) & (energy > least * start), energy, 0)
        alpha = alpha / jnp.where(curvature > 0, curvature, 1)
        x = jax.tree.map(lambda x, p: x + _per(alpha, p) * p, x, p)
        r = jax.tree.map(lambda r, q: r - _per(alpha, q) * q, r, image)
        z = precondition(r)
        after = inner(r, z, like)
        ratio = jnp.where(energy > 0, after / jnp.where(energy > 0, energy, 1), 0)
        p = jax.tree.map(lambda z, p: z + _per(ratio, p) * p, z, p)
        return step + 1, x, r, p, jnp.where(alpha > 0, after, 0)

    start = inner(right, first, like)
    zero = jax.tree.map(jnp.zeros_like, right)
    state = (jnp.zeros((), int), zero, right, first, start)
    found = lax.while_loop(going, body, state)[1]
    # From a right side that is not finite the search ends where it began, at zero.
    is_finite = jnp.isfinite(start)
    return jax.tree.map(lambda x: jnp.where(_per(is_finite, x), x, jnp.nan), found)


def _diagonal(hessian: Callable[[T], T], right: T, like: Array) -> T:
    """The diagonal of a Hessian, one product for each statistic."""
    leaves, structure = jax.tree.flatten(right)

    def of_leaf(place: int) -> Array:
        leaf = leaves[place]
        event = leaf.shape[like.ndim :]
        count = int(leaf.size // max(like.size, 1))

        def entry(k: Array) -> Array:
            unit = jnp.zeros(count, leaf.dtype).at[k].set(1).reshape(event)
            units = [jnp.zeros_like(other) for other in leaves]
            units[place] = jnp.broadcast_to(unit, leaf.shape)
            product = jax.tree.leaves(hessian(jax.tree.unflatten(structure, units)))
            return product[place].reshape((*like.shape, count))[..., k]

        entries = lax.map(entry, jnp.arange(count))
        return jnp.moveaxis(entries, 0, -1).reshape(leaf.shape)

    return jax.tree.unflatten(structure, [of_leaf(i) for i in range(len(leaves))])


def _per(number: Array, leaf: Array) -> Array:
    """A number per member of a batch, shaped to multiply a leaf of T."""
    return number.reshape(number.shape + (1,) * (leaf.ndim - number.ndim))
