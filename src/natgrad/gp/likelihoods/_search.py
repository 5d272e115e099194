"""Quantiles from a distribution function, by bracketing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


Scalar = Float[Array, ""]
Function = Callable[[Scalar], Scalar]

# How a real number is made one of the support; sigmoid and exp reach all its ends.
SUPPORTS: dict[str, Function] = {
    "real": lambda t: t,
    "positive": jnp.exp,
    "unit": jax.nn.sigmoid,
}


def quantile(cdf: Function, level: Scalar, support: str) -> Scalar:
    """The y of a support at which a distribution function reaches a level."""
    if support == "count":
        return _count_quantile(cdf, level)
    at = SUPPORTS[support]
    return at(_root(lambda t: cdf(at(t)) - level, jnp.ones_like(level)))


def _count_quantile(cdf: Function, level: Scalar) -> Scalar:
    """The smallest whole number at which the distribution function is at the level."""
    one = jnp.ones_like(level)
    largest = 1 / jnp.finfo(level.dtype).eps  # beyond it not all whole numbers exist
    high = lax.while_loop(
        lambda y: (cdf(y) < level) & (y < largest), lambda y: 2 * y, one
    )

    def halve(ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = jnp.floor((low + high) / 2)
        short = cdf(middle) < level
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low = jnp.where(high > 1, high / 2, -one)
    return lax.while_loop(lambda ends: ends[1] - ends[0] > 1, halve, (low, high))[1]


def _root(function: Function, width: Scalar) -> Scalar:
    """The root of an increasing function.

    A bracket is doubled until it holds the root, then cut by the method of
    interpolation, truncation and projection, which is never slower than halving by more
    than a step.
    """
    widest = jnp.finfo(width.dtype).max / 8

    # Written so that the function is compiled twice, here and where brackets are cut.
    def is_outside(state) -> Array:
        width, at_low, at_high = state
        return ((at_low > 0) | (at_high < 0)) & (width < widest)

    def doubled(state):
        width = 2 * state[0]
        at_low, at_high = jax.vmap(function)(jnp.stack([-width, width]))
        return width, at_low, at_high

    outside = (width / 2, jnp.ones_like(width), -jnp.ones_like(width))
    width, at_low, at_high = lax.while_loop(is_outside, doubled, outside)
    eps = jnp.finfo(width.dtype).eps
    # A width of 2w is halved to a few units of the last place of w in this many steps.
    steps = jnp.log2(1 / eps)

    def go_on(state) -> Array:
        low, high, _, _, count = state
        scale = jnp.maximum(jnp.abs(low), jnp.abs(high))
        return (high - low > 2 * eps * scale) & (count < 2 * steps)

    def cut(state):
        low, high, at_low, at_high, count = state
        gap, middle = high - low, (low + high) / 2
        fraction = at_low / (at_low - at_high)
        guess = low + gap * jnp.where(jnp.isfinite(fraction), fraction, 0.5)
        toward = jnp.sign(middle - guess)
        push = jnp.minimum(0.2 * gap**2 / (2 * width), jnp.abs(middle - guess))
        guess = guess + toward * push
        allowed = 2 * width * 2.0 ** (-count) - gap / 2
        guess = middle - toward * jnp.minimum(jnp.abs(middle - guess), allowed)
        # The guess is kept off the ends, or a bracket with its root there stays wide.
        guess = jnp.clip(guess, low + eps * gap, high - eps * gap)
        value = function(guess)
        below = value < 0
        return (
            jnp.where(below, guess, low),
            jnp.where(below, high, guess),
            jnp.where(below, value, at_low),
            jnp.where(below, at_high, value),
            count + 1,
        )

    start = (-width, width, at_low, at_high, jnp.zeros_like(width))
    low, high, *_ = lax.while_loop(go_on, cut, start)
    return (low + high) / 2
