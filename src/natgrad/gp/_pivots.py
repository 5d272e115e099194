"""Rows that explain the others: pivoted Cholesky decompositions."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from natgrad._runtime.programs import filter_jit


NOTHING = 1e-12
"""What share of the prior variance counts as explained."""


class Pivots(NamedTuple):
    """Rows in the order in which they were chosen, −1 where nothing was left.

    `left` is what each row's variance has left in the end.
    """

    chosen: Int[Array, " num"]
    left: Float[Array, " N"]


@filter_jit
def pivoted(kernel: Any, x: Array, weight: Any, num: int) -> Pivots:
    """The rows that are each, when chosen, the least explained, times their weight."""
    left = _mean_of_latents(kernel.diag(x), 1)
    # A kernel in fewer bits cannot explain as much.
    share = max(NOTHING, 10 * float(jnp.finfo(left.dtype).eps))
    floor = share * left.max()
    weight = jnp.asarray(weight, left.dtype)

    def choose(step: Array, carry: tuple[Array, Array, Array]) -> Any:
        chosen, left, factor = carry
        worth = jnp.where(left > floor, weight * left, -jnp.inf)
        pivot = worth.argmax()
        is_left = worth[pivot] > 0
        row = _mean_of_latents(kernel(x[pivot][None, :], x), 2)[0]
        row = (row - factor[:, pivot] @ factor) / jnp.sqrt(left[pivot])
        row = jnp.where(is_left, row, 0)
        left = (left - row**2).at[pivot].set(jnp.where(is_left, 0, left[pivot]))
        chosen = chosen.at[step].set(jnp.where(is_left, pivot, -1))
        return chosen, left, factor.at[step].set(row)

    first = (jnp.full(num, -1), left, jnp.zeros((num, len(x)), left.dtype))
    chosen, left, _ = lax.fori_loop(0, num, choose, first)
    return Pivots(chosen, left)


def _mean_of_latents(values: Array, ndim: int) -> Array:
    return values.mean(0) if values.ndim > ndim else values
