"""What one step of training does, as a pure function of the state and a batch."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from natgrad._guarded import GuardedState, guarded_ngd
from natgrad._optim import annealed, annealing, split
from natgrad.families._base import is_distribution
from natgrad.train._constants import NONE, Constants, is_trained
from natgrad.train._devices import ALONE, Across


RATE = 0.03
"""Where the rate of Adam starts: a change of a logarithm or of a scaled input."""

TRAVEL = 200
"""Steps before an average begins: they are still on their way to the optimum."""

PARTS = 4
"""Two thirds of an average is on the last of this many equal parts of its steps."""


class Rule(NamedTuple):
    """What the training loop needs: the state of the optimizers, and a step.

    `step(params, state, batch, **extra)` returns the parameters, the state and the
    loss. If the loss or gradient is not finite, the step changes nothing and returns a
    loss that is not finite. A step takes what it needs from `extra`: `progress`, the
    share of the run that is over; `key`, which is new at each step; `across`, the
    devices that share the batch and over which it takes means; and `complete`, which
    restores parameters that are not trained, such as functions.

    `is_shareable` says that the rule is correct for parts of any weights, whatever the
    loss. `is_over`, a function of its state, ends the run; such a rule sees all rows at
    every step, on one device. `is_annealed` says that its rate falls with `progress`,
    and the loop decides when that begins. `is_brief` marks a rule for few, short steps:
    it compiles faster and runs slower. `sized` makes the rule for data of so many rows,
    of which a batch has a fraction, if it was made without these numbers: the loop
    knows them.

    >>> rule = natgrad.train.in_turn(lambda q, batch: loss(q), natgrad.ngd(1.0))
    >>> moved, state, value = rule.step(q, rule.init(q), y)
    >>> print(moved.linear, f"{value:.2f}")
    [1.] 0.28
    """

    init: Callable[[Any], Any]
    step: Callable[..., tuple[Any, Any, Float[Array, ""]]]
    is_shareable: bool = False
    is_over: Callable[[Any], Bool[Array, ""]] | None = None
    is_annealed: bool = False
    is_brief: bool = False
    sized: Callable[[float, float | None], "Rule"] | None = None


def for_data(rule: Rule, num_data: float | None, fraction: float | None) -> Rule:
    """The rule for data of so many rows, of which a batch has a fraction."""
    if rule.sized is None or num_data is None:
        return rule
    made = rule.sized(num_data, fraction)
    return rule._replace(init=made.init, step=made.step, sized=None)


class AveragedState(NamedTuple):
    """The state of an averaged rule: where its steps are, and how many there were."""

    optimizer: Any
    params: Any
    steps: Float[Array, ""]


def averaged(rule: Rule) -> Rule:
    """The same steps, with an average over the last of them as the parameters.

    Steps on batches scatter around the optimum, and their average is nearer to it
    (Polyak and Juditsky, 1992). Its window grows with the steps and shrinks as the rate
    falls: when that is 0 it is the last step. The steps do not depend on the average.
    """

    def init(params: PyTree) -> AveragedState:
        return AveragedState(rule.init(params), params, jnp.zeros((), float))

    def step(
        params: Any, state: AveragedState, batch: Any, progress: Any = 0.0, **extra: Any
    ) -> tuple[Any, AveragedState, Float[Array, ""]]:
        there, optimizer, loss = rule.step(
            state.params, state.optimizer, batch, progress=progress, **extra
        )
        window = jnp.maximum(state.steps - TRAVEL, 0) / PARTS
        weight = 1 / (1 + window * annealing(progress))

        def towards(mean: Array, new: Array) -> Array:
            if mean.dtype.itemsize < 4:  # too few digits for small changes
                return new
            return mean + weight.astype(mean.dtype) * (new - mean)

        is_taken = jnp.isfinite(loss)
        mean = jax.tree.map(towards, params, there)
        params = accept_if(is_taken, mean, params)
        steps = state.steps + is_taken.astype(float)
        return params, AveragedState(optimizer, there, steps), loss

    return rule._replace(init=init, step=step)


def last_step(state: PyTree) -> Any:
    """Where the steps of a run are; its parameters may be an average over them."""
    optimizer = state.optimizer
    is_average = isinstance(optimizer, AveragedState)
    return optimizer.params if is_average else state.params


def guard_of(optimizer: PyTree) -> GuardedState | None:
    """The state of a guarded step among those of all optimizers."""
    is_guard = lambda node: isinstance(node, GuardedState)
    nodes = filter(is_guard, jax.tree.leaves(optimizer, is_leaf=is_guard))
    return next(nodes, None)


Loss = Callable[..., Array]
"""A number in nats to be made small, of the parameters, a batch and maybe a `key`."""


def in_turn(loss: Loss, *optimizers: optax.GradientTransformation) -> Rule:
    """A rule that takes a step of each optimizer in turn, on the same batch.

    Each optimizer gets the gradient at the parameters left by the previous one. On
    several devices the loss of a batch is the mean of those of its parts. With one
    optimizer it is a plain step. `natgrad.split` moves distributions and the rest at
    the same time, or with None for one of them in turn, as the paper does.

    >>> natural = natgrad.split(natgrad.ngd(1.0), None)
    >>> adam = natgrad.split(None, optax.adam(0.01))
    >>> rule = natgrad.train.in_turn(lambda q, batch: loss(q), natural, adam)
    >>> moved, state, value = rule.step(q, rule.init(q), y)
    >>> print(moved.linear)
    [1.]
    """
    steps = [optax.with_extra_args_support(tx) for tx in optimizers]
    names = list(inspect.signature(loss).parameters)[2:]

    def init(params: PyTree) -> tuple[optax.OptState, ...]:
        return tuple(tx.init(params) for tx in steps)

    def step(
        params: Any,
        state: Any,
        batch: Any,
        across: Across = ALONE,
        complete: Constants = NONE,
        **extra: Any,
    ) -> Any:
        known = {name: extra[name] for name in names if name in extra}
        of_part = lambda params: loss(complete(params), batch, **known)
        value_fn = lambda params: across.mean(of_part(params))
        is_good, first, there, states = jnp.ones((), bool), None, params, []
        for tx, tx_state in zip(steps, state, strict=True):
            value, grads = across.mean(jax.value_and_grad(of_part)(there))
            is_good &= all_finite((value, grads))
            updates, tx_state = tx.update(
                grads,
                tx_state,
                there,
                **{**extra, "value": value, "grad": grads, "value_fn": value_fn},
            )
            there = optax.apply_updates(there, updates)
            states.append(tx_state)
            first = value if first is None else first
        is_good &= all_finite(there) & all_inside(there)
        moved = (there, tuple(states))
        params, state = accept_if(is_good, moved, (params, state))
        return params, state, jnp.where(is_good, jnp.asarray(first), jnp.nan)

    return Rule(init, step)


def default_rule(loss: Loss, params: PyTree, fraction: float | None) -> Rule:
    """A guarded step on the distributions and Adam on the rest, where there is any.

    `fraction` is the part of the data that a batch holds. The distributions move first.
    """
    nodes = jax.tree.leaves(params, is_leaf=is_distribution)
    kinds = frozenset(map(is_distribution, filter(is_trained, nodes)))
    return _default_rule(loss, kinds, fraction)


@functools.lru_cache(maxsize=16)
def _default_rule(loss: Loss, kinds: frozenset[bool], fraction: float | None) -> Rule:
    """One object for one loss, so that it is compiled once."""
    is_noisy = "key" in inspect.signature(loss).parameters
    guarded = guarded_ngd(fraction, is_noisy=is_noisy)
    ordinary = annealed(optax.scale_by_adam(), RATE)
    optimizers: list[optax.GradientTransformation] = []
    if True in kinds:
        optimizers.append(split(guarded, None))
    if False in kinds:
        optimizers.append(split(None, ordinary))
    rule = in_turn(loss, *optimizers)
    if False not in kinds:  # guarded steps get shorter, and need no average
        return rule
    rule = rule._replace(is_annealed=True)
    return rule if fraction == 1 and not is_noisy else averaged(rule)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether all numbers of a tree are."""
    leaves = [
        leaf
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    ]
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def all_inside(tree: PyTree) -> Bool[Array, ""]:
    """Whether all distributions of a tree are members of their families."""
    nodes = jax.tree.leaves(tree, is_leaf=is_distribution)
    insides = [node.is_inside().all() for node in nodes if is_distribution(node)]
    return jnp.stack([*insides, jnp.ones((), bool)]).all()


def accept_if(is_good: Array, new: PyTree, old: PyTree) -> Any:
    """`new` if it is good, else `old`."""
    return jax.tree.map(lambda ours, theirs: jnp.where(is_good, ours, theirs), new, old)
