"""Without noise: the best step along a direction, and L-BFGS, both of SciPy."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from natgrad.train._rules import all_inside


DECADES = (-10, 3)
"""The powers of ten between which a step is sought."""


class Searched(NamedTuple):
    """The best step found, the parameters there, and their loss."""

    size: float
    params: Any
    loss: float
    evaluations: int


def line_search(
    loss: Callable[[Any], Any], params: Any, direction: Any, tolerance: float = 1e-8
) -> Searched:
    """The step along a direction that lowers the loss most, by Brent's method.

    It moves by −size · direction, so that the direction may be a gradient or a natural
    gradient. First every half power of ten is tried, then Brent's method narrows down
    the best of them, in the logarithm of the size. Where a distribution has left its
    family or the loss is not finite, the loss counts as infinite. If no step lowers it,
    the size is 0.
    """
    # Of one loss it is the same compiled function, however many searches there are.
    value_at, evaluations = jax.jit(loss), 0

    def value(log_size: float) -> float:
        nonlocal evaluations
        evaluations += 1
        there, is_inside = _moved(params, direction, 10.0**log_size)
        found = float(value_at(there)) if is_inside else math.inf
        return found if math.isfinite(found) else math.inf

    import scipy.optimize

    low, high = DECADES
    grid = np.linspace(low, high, 2 * (high - low) + 1)
    values = [value(point) for point in grid]
    best = int(np.argmin(values))
    left, right = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    narrowed: Any = scipy.optimize.minimize_scalar(
        value, bounds=(left, right), method="bounded", options={"xatol": tolerance}
    )
    log_size, lowest = grid[best], values[best]
    if narrowed.fun < lowest:
        log_size, lowest = narrowed.x, narrowed.fun
    here = float(value_at(params))
    if not lowest < here:
        return Searched(0.0, params, here, evaluations)
    size = 10.0**log_size
    return Searched(float(size), _stepped(params, direction, size), lowest, evaluations)


class Minimized(NamedTuple):
    """The best parameters seen, their loss, the loss of all that were seen, and why."""

    params: Any
    loss: float
    losses: list[float]
    reason: str


def lbfgs(
    loss: Callable[[Any], Any],
    params: Any,
    steps: int = 1000,
    callback: Callable[[int, Any], None] | None = None,
) -> Minimized:
    """Minimises a loss of all parameters at once by SciPy's L-BFGS-B.

    Every leaf must be free, as in Cholesky factors and logarithms. The best point seen
    is returned, also where the method gives up. `callback` gets the number of each
    iteration and its parameters.
    """
    flat, unravel = ravel_pytree(params)
    value_and_grad = jax.jit(jax.value_and_grad(lambda flat: loss(unravel(flat))))
    losses: list[float] = []
    best = Minimized(params, math.inf, losses, "")
    last = 0.0, np.zeros(flat.size)

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, last
        value, grad = value_and_grad(jnp.asarray(point, flat.dtype))
        value, grad = float(value), np.asarray(grad, np.float64)
        losses.append(value)
        if value < best.loss:
            best = best._replace(
                params=unravel(jnp.asarray(point, flat.dtype)), loss=value
            )
        if math.isfinite(value) and np.isfinite(grad).all():
            last = value, grad
            return last
        # A wall of a height that can be interpolated: before one that is too high the
        # step becomes nothing, and that would be taken for convergence.
        return last[0] + max(1.0, abs(last[0])), -last[1]

    iterations = 0

    def after(point: np.ndarray) -> None:
        nonlocal iterations
        iterations += 1
        if callback is not None:
            callback(iterations, unravel(jnp.asarray(point, flat.dtype)))

    import scipy.optimize

    result = scipy.optimize.minimize(
        evaluate,
        np.asarray(flat, np.float64),
        jac=True,
        method="L-BFGS-B",
        callback=after,
        options={"maxiter": steps, "maxfun": 10 * steps},
    )
    return best._replace(reason=str(result.message))


def _stepped(params: Any, direction: Any, size: Any) -> Any:
    move = lambda leaf, step: leaf - jnp.asarray(size, leaf.dtype) * step
    return jax.tree.map(move, params, direction)


@jax.jit
def _moved(params: Any, direction: Any, size: Any) -> tuple[Any, Any]:
    """Where a step leads, and whether no distribution has left its family there."""
    there = _stepped(params, direction, size)
    return there, all_inside(there)
