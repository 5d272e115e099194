"""Hyperparameters without a learning rate: L-BFGS on the profile of a loss.

The profile of a loss L(q, h) is F(h) = min over q of L(q, h). Guarded natural steps
bring q to its minimum in a few steps, and there ∂F/∂h is ∂L/∂h with q held (the
envelope theorem). F has no noise, so L-BFGS and a line search apply, and nothing is
left to tune: the loss never rises, and the run ends by itself.

A step of the rule is one evaluation of F. The line search is part of the state, so a
run can be saved and resumed between any two evaluations.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from natgrad._guarded import GuardedState, guarded_ngd
from natgrad.families._base import is_distribution
from natgrad.train._constants import NONE, Constants
from natgrad.train._rules import Loss, Rule


MEMORY = 20
"""How many pairs L-BFGS keeps."""

DECREASE, CURVATURE = 1e-4, 0.9
"""The weak Wolfe conditions on a step."""

MAX_TRIALS = 20
"""How many steps along one direction are tried before the run ends."""

MAX_STEP = 3.0
"""How far one step may move any hyperparameter, a logarithm mostly."""

MAX_DISTANCE = 20.0
"""How far a hyperparameter may go from where it began: the noise of targets that have
none would shrink for ever."""

NATURAL_TOLERANCE = 1e-4
"""Nats per unit of weight by which the last natural step on q may lower the loss."""

MAX_NATURAL_STEPS = 30
"""Natural steps on q in one evaluation, at most."""

TOLERANCE = 0.002
"""Nats per unit of weight that the last accepted steps must have gained together."""

WINDOW = 10
"""How many accepted steps these are."""

NEGLIGIBLE = 1e-7
"""Nats per unit of weight that are not worth another step, whatever came before."""


class Evaluated(NamedTuple):
    """The profile at some hyperparameters.

    `params` have their distributions at the minimum, `slope` is the gradient, shaped
    like them, and `kept` is what the next evaluation may start from.
    """

    params: Any
    value: Float[Array, ""]
    slope: Any
    kept: Any


Evaluate = Callable[[Any, Any, Any, Constants], Evaluated]
"""The profile at `params`, from what was `kept` of the point before, on a batch; the
last argument puts back among the parameters what is not trained."""


class LineSearchState(NamedTuple):
    """The line search: how far along the direction the next point is, and its bounds.

    `values` are those of the last accepted points, the newest last; `slope` belongs to
    that one.
    """

    memory: Any
    unit: Float[Array, " P"]
    start: Float[Array, " P"]
    kept: Any
    values: Float[Array, " K"]
    slope: Float[Array, " P"]
    direction: Float[Array, " P"]
    size: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    trials: Int[Array, ""]
    accepted: Int[Array, ""]
    is_over: Bool[Array, ""]


def lbfgs_rule(
    evaluate: Evaluate,
    total: Callable[[Any], Any],
    first_kept: Callable[[Any], Any] = lambda params: (),
    units: Callable[[Any], Any] | None = None,
    tolerance: float = TOLERANCE,
    window: int = WINDOW,
) -> Rule:
    """L-BFGS on a profile; a step is one evaluation.

    `total(batch)` is how much the rows count together: what is left to gain is judged
    per unit of it. `first_kept(params)` is what the first evaluation begins with, and
    `units(params)` a tree of the lengths in which the hyperparameters are measured. The
    run ends when the last `window` accepted steps gained less than `tolerance` in all.
    """
    lbfgs = optax.scale_by_lbfgs(MEMORY)

    def init(params: PyTree) -> LineSearchState:
        flat = _hyperparameters(params)[0]
        zero, count = jnp.zeros((), flat.dtype), jnp.zeros((), int)
        return LineSearchState(
            memory=lbfgs.init(flat),
            unit=jnp.ones_like(flat)
            if units is None
            else _raveled(units(params), params),
            start=flat,
            kept=first_kept(params),
            values=jnp.full(window + 1, jnp.inf, flat.dtype),
            slope=jnp.zeros_like(flat),
            direction=jnp.zeros_like(flat),
            size=zero,
            low=zero,
            high=zero + jnp.inf,
            trials=count,
            accepted=count,
            is_over=jnp.zeros((), bool),
        )

    def step(
        params: PyTree,
        state: LineSearchState,
        batch: PyTree,
        complete: Constants = NONE,
        **_: object,
    ) -> Any:
        here, at = _hyperparameters(params)
        unit = state.unit
        there = here - state.size * state.direction * unit
        seen = evaluate(at(there), state.kept, batch, complete)
        slope = _raveled(seen.slope, params) * unit
        is_finite = jnp.isfinite(seen.value) & jnp.isfinite(slope).all()
        is_finite &= (jnp.abs(there - state.start) <= MAX_DISTANCE * unit).all()
        falls = -state.slope @ state.direction  # how fast, along the direction
        still_falls = -slope @ state.direction
        is_lower = seen.value <= state.values[-1] + DECREASE * state.size * falls
        is_first = state.accepted == 0
        is_low_enough = is_finite & (is_first | is_lower)
        is_flat_enough = is_first | (still_falls >= CURVATURE * falls)
        is_accepted = is_low_enough & is_flat_enough

        # Where the loss has risen the step was too long; where it still falls steeply,
        # too short. Bisect, or double while nothing was too long.
        low = jnp.where(is_low_enough, state.size, state.low)
        high = jnp.where(is_low_enough, state.high, state.size)
        between = jnp.where(jnp.isinf(high), 2 * state.size, (low + high) / 2)

        with jax.numpy_dtype_promotion("standard"):  # Optax counts in 32 bits
            updates, memory = lbfgs.update(slope, state.memory, there / unit)
        direction = jnp.asarray(updates)
        longest = jnp.abs(direction).max(initial=MAX_STEP)
        values = jnp.append(state.values[1:], seen.value)
        # What the quadratic model of L-BFGS still promises, and what was gained.
        left, gained = slope @ direction / 2, values[0] - values[-1]
        count = total(batch)
        is_over = (left <= NEGLIGIBLE * count) | (gained < tolerance * count)
        onward = state._replace(
            memory=memory,
            kept=seen.kept,
            values=values,
            slope=slope,
            direction=direction,
            size=MAX_STEP / longest,
            low=jnp.zeros_like(low),
            high=jnp.full_like(high, jnp.inf),
            trials=jnp.zeros_like(state.trials),
            accepted=state.accepted + 1,
            is_over=is_over,
        )
        again = state._replace(
            size=between,
            low=low,
            high=high,
            trials=state.trials + 1,
            is_over=state.trials + 1 >= MAX_TRIALS,
        )
        choose = lambda ours, theirs: jnp.where(is_accepted, ours, theirs)
        params = jax.tree.map(choose, seen.params, params)
        state = jax.tree.map(choose, onward, again)
        # The loss of a run is that of the point it has reached.
        value = state.values[-1]
        return params, state, jnp.where(jnp.isfinite(value), value, jnp.nan)

    return Rule(init, step, is_over=lambda state: state.is_over)


class Minimized(NamedTuple):
    """Where natural steps have brought the distributions, and what that took."""

    params: Any
    value: Float[Array, ""]
    steps: Int[Array, ""]


def minimize_distributions(
    loss: Callable[[Any], Array],
    params: PyTree,
    tolerance: ArrayLike,
    most: int = MAX_NATURAL_STEPS,
) -> Minimized:
    """Guarded natural steps until one lowers the loss by less than the tolerance."""
    natural = guarded_ngd(1.0)

    def going(carry: tuple[Any, ...]) -> Array:
        _, state, before, value = carry
        is_first = state.steps == 0
        is_rest = before - value <= tolerance
        return is_first | (~is_rest & (state.steps < most))

    def body(carry: tuple[Any, ...]) -> Any:
        params, state, _, value = carry
        value, grads = jax.value_and_grad(loss)(params)
        seen = {"value": value, "grad": grads, "value_fn": loss}
        updates, after = natural.update(grads, state, params, **seen)
        state = cast(GuardedState, after)
        # A step that rounding hides is not evaluated.
        reached = jnp.where(jnp.isnan(state.value), value, state.value)
        return optax.apply_updates(params, updates), state, value, reached

    infinite = jnp.full((), jnp.inf, float)
    first = (params, natural.init(params), infinite, infinite)
    params, state, _, value = lax.while_loop(going, body, first)
    return Minimized(params, value, state.steps)


@functools.lru_cache(maxsize=16)
def profile_rule(loss: Loss, total: float) -> Rule:
    """The profile of any loss over the distributions among its parameters.

    The loss is in nats, of all the data, and a batch must hold all rows, which count
    as much as `total` together.
    """

    def evaluate(
        params: PyTree, kept: PyTree, batch: Any, complete: Constants
    ) -> Evaluated:
        of_params = lambda params: loss(complete(params), batch)
        there = minimize_distributions(of_params, params, NATURAL_TOLERANCE * total)
        slope = jax.grad(of_params)(there.params)
        return Evaluated(there.params, there.value, slope, kept)

    return lbfgs_rule(evaluate, lambda batch: total)


def _hyperparameters(params: PyTree) -> tuple[Array, Callable[[Array], Any]]:
    """All leaves that belong to no distribution as one vector, and its inverse."""
    nodes, structure = jax.tree.flatten(params, is_leaf=is_distribution)
    flat, unravel = _flat([node for node in nodes if not is_distribution(node)])

    def at(flat: Array) -> Any:
        leaves = iter(unravel(flat))
        filled = [node if is_distribution(node) else next(leaves) for node in nodes]
        return jax.tree.unflatten(structure, filled)

    return flat, at


def _raveled(tree: PyTree, params: PyTree) -> Array:
    """The same leaves of a tree that is shaped like the parameters."""
    structure = jax.tree.structure(params, is_leaf=is_distribution)
    kinds = map(is_distribution, jax.tree.leaves(params, is_leaf=is_distribution))
    nodes = zip(structure.flatten_up_to(tree), kinds, strict=True)
    return _flat([node for node, is_fixed in nodes if not is_fixed])[0]


def _flat(leaves: list[Any]) -> tuple[Array, Callable[[Array], Any]]:
    """A vector of all leaves, of which there may be none, and the way back."""
    return ravel_pytree(leaves) if leaves else (jnp.zeros(0, float), lambda _: [])
