"""The guarded step: natural gradient descent with no step size to set.

A natural step is mirror descent with the Kullback-Leibler divergence in the place of
half a squared distance. It may be as long as the loss is smooth relative to that
divergence, and whether it is can be seen on the minibatch at hand. The step from q to
q′ of size γ is taken if

    L(q) − L(q′) ≥ c/γ · KL(q ‖ q′),

else γ is halved; and once a step has passed, γ is halved on for as long as the loss
still falls, because a loss that is far from conjugate lets long steps pass by a hair.
For a conjugate model the two sides are equal at γ = 1 and c = 1, and no shorter step is
better, so the exact step is taken. On a minibatch, a step within one nat of where it
began is taken untested; a loss without noise is tested to the end, or it would circle
its minimum at that distance. On a minibatch, if a step leaves the family, none is taken
that ends just inside, where a variance may be anything: one of four times the length
has to stay inside as well. Where the constants come from is in the page
docs/explanation/guarded.md.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, UInt32

from natgrad._linear_map import forward_only
from natgrad._optim import Tree, annealing, bound
from natgrad.families._base import AbstractDistribution, is_distribution, is_live


SHARE = 0.5
"""c, the share of the divergence by which the loss must fall."""

GOOD = 0.9
"""The share of what a conjugate loss would gain at which no half is tried."""

UNTESTED = 1.0
"""KL(q′ ‖ q) in nats up to which a step on a noisy loss is taken without a test."""

WEIGHT = 1.5
"""γ = w/(w + t) at step t of a noisy loss: sites of step t weigh t^(w − 1) in q."""

MARGIN = 8
"""How many times shorter than one that left the family a step on a noisy loss is."""

HALVINGS = 100
"""How often a step is halved before q is left as it is."""

FLOOR = 0.02, 0.1
"""The least step tried while other parameters move along with q: the part of the data
that a batch holds, but not less and not more than this."""


MIXERS = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
"""Odd numbers without a pattern, for a fingerprint."""


class GuardedState(NamedTuple):
    """What the last step did, and counts over all steps."""

    steps: Int[Array, ""]
    step_size: Float[Array, ""]
    halvings: Int[Array, ""]
    refused: Int[Array, ""]
    tests: Int[Array, ""]
    is_noisy: Bool[Array, ""]
    is_joint: Bool[Array, ""]
    value: Float[Array, ""]
    rest: UInt32[Array, ""]


Members = list[AbstractDistribution[Any]]
"""The distributions of a tree, or what is added to each."""


class _Trial(NamedTuple):
    """A search along halves of the first step, and the best that passed so far.

    `edge` is the shortest step that left the family.
    """

    size: Array
    tries: Array
    tests: Array
    is_over: Array
    is_found: Array
    best_size: Array
    best_value: Array
    best_update: Members
    edge: Array


REVERSE = (
    "reverse mode cannot differentiate guarded_ngd, which halves a step until it "
    "passes its test; use forward mode, jax.jvp or jax.jacfwd, or take the steps by "
    "natgrad.mirror_descent, whose size is fixed"
)


def guarded_ngd(
    batch_fraction: float | None = None, *, is_noisy: bool = False
) -> optax.GradientTransformationExtraArgs:
    """Natural gradient descent that chooses its own step size, for all families.

    Use it like a line search of Optax. The loss must be in nats and cover all rows: the
    negative ELBO of the data set, not of one row.

        tx.update(grads, state, params, value=value, grad=grads, value_fn=value_fn)

    `value_fn` is the loss on the same minibatch as a function of the parameters. If it
    takes more arguments, such as a batch or a key, pass them to `update`. Every
    distribution in the tree takes the same step in θ, whatever its coordinates. Other
    leaves do not move. If a step fails every test, or a gradient is not finite,
    nothing moves and the state counts the step as refused.

    `batch_fraction` is the share of the data in a minibatch. If you leave it out,
    natgrad detects a noisy loss: its value differs from the last one at the same point.
    Set `is_noisy=True` if the loss draws new random numbers at each step: it is noisy
    even if a batch holds all the data. While other parameters move, steps do not fall
    below a floor. If you pass `update` the `progress` of the run, from 0 to 1, the
    floor falls to 0 with it, as the learning rate does under `annealed`.

    The state has the `step_size` of the last step, 0 if it was refused. It counts over
    all `steps` how often one was halved (`halvings`), how many were `refused`, and how
    many losses were evaluated to test them (`tests`).

    Raises:
        ValueError: If `batch_fraction` is not above 0 and at most 1, if `update` gets
            no `value`, `grad` or `value_fn`, or if there is no distribution.

    >>> tx = natgrad.guarded_ngd()
    >>> value, grad = jax.value_and_grad(loss)(q)
    >>> given = {"value": value, "grad": grad, "value_fn": loss}
    >>> updates, state = tx.update(grad, tx.init(q), q, **given)
    >>> bool(loss(optax.apply_updates(q, updates)) < value)
    True
    >>> state.refused.item()
    0
    """

    if batch_fraction is not None and not 0 < batch_fraction <= 1:
        raise ValueError(
            f"batch_fraction is {batch_fraction}; it is the rows of a batch over the "
            "rows of all the data, above 0 and at most 1"
        )

    def init(params: object) -> GuardedState:
        # An array for each field: a buffer can be donated but once.
        zero = lambda kind: jnp.zeros((), kind)
        return GuardedState(
            steps=zero(int),
            step_size=zero(float),
            halvings=zero(int),
            refused=zero(int),
            tests=zero(int),
            is_noisy=jnp.full((), is_noisy, bool),
            is_joint=zero(bool),
            value=jnp.full((), jnp.nan, float),
            rest=zero(jnp.uint32),
        )

    def update(
        updates: Tree,
        state: Any,
        params: Tree | None = None,
        *,
        value: ArrayLike | None = None,
        grad: Tree | None = None,
        value_fn: Callable[..., ArrayLike] | None = None,
        rest: object = None,
        progress: ArrayLike | None = None,
        **extra: Any,
    ) -> tuple[Tree, GuardedState]:
        if params is None or value_fn is None:
            raise ValueError(
                "guarded_ngd tests its steps: call update(grads, state, params, "
                "value=value, grad=grads, value_fn=value_fn), "
                "value_fn being the loss on the same batch"
            )
        is_masked = lambda node: isinstance(node, optax.MaskedNode)
        if rest is None and any(
            map(is_masked, jax.tree.leaves(params, is_leaf=is_masked))
        ):
            raise ValueError(
                "guarded_ngd needs all parameters to evaluate the loss: call "
                "natgrad.split instead of optax.partition or optax.masked"
            )
        loss = bound(value_fn, extra)
        evaluate = lambda params: jnp.asarray(loss(params)).astype(float)
        value = jnp.asarray(loss(params) if value is None else value)
        # The rounding is that of the loss, whatever the width it is compared in, and
        # nats have a size of their own: a loss may be zero.
        eps, value = float(jnp.finfo(value.dtype).eps), value.astype(float)
        scale = jnp.maximum(jnp.abs(value), 1)

        others = _fingerprint(params if rest is None else rest)
        is_joint = state.is_joint | ((state.rest != others) & (state.steps > 0))
        gap = jnp.abs(value - state.value)
        has_noise = state.is_noisy | (gap > math.sqrt(eps) * scale)
        noise = _noise(has_noise, None if is_noisy else batch_fraction)
        size = _first_size(state.steps, noise, is_joint, progress)

        nodes, structure = jax.tree.flatten(params, is_leaf=is_distribution)
        grads = structure.flatten_up_to(updates if grad is None else grad)
        places = [i for i, node in enumerate(nodes) if is_live(node)]
        if not places:
            raise ValueError("guarded_ngd found no distribution among the parameters")
        start = [nodes[i] for i in places]
        slopes = [grads[i] for i in places]

        def whole(moved: Members, rest: list[Any]) -> Tree:
            filled = dict(zip(places, moved, strict=True))
            filled = [filled.get(i, node) for i, node in enumerate(rest)]
            return jax.tree.unflatten(structure, filled)

        at = lambda moved: evaluate(whole(moved, nodes))
        slack = 10 * eps * scale
        trial = _search(at, start, slopes, value, size, noise > 0, slack)
        now = GuardedState(
            steps=state.steps + 1,
            step_size=trial.best_size,
            halvings=state.halvings + _halvings(size, trial),
            refused=state.refused + (~trial.is_found).astype(int),
            tests=state.tests + trial.tests,
            is_noisy=has_noise,
            is_joint=is_joint,
            value=jnp.where(trial.is_found, trial.best_value, value),
            rest=others,
        )
        still = jax.tree.map(jnp.zeros_like, nodes)
        return forward_only((whole(trial.best_update, still), now), REVERSE)

    return optax.GradientTransformationExtraArgs(init, update)


def _noise(is_noisy: Array, batch_fraction: float | None) -> Array:
    """The part of the data that a minibatch leaves out; all of it if not known."""
    if batch_fraction is None:
        return jnp.where(is_noisy, 1.0, 0.0)
    return jnp.full((), 1.0 - batch_fraction)


def _first_size(
    steps: Array, noise: Array, is_joint: Array, progress: ArrayLike | None
) -> Array:
    """The step tried first: 1, falling as the noise of the minibatches demands."""
    size = WEIGHT / (WEIGHT + noise * steps.astype(float))
    floor = jnp.clip(1 - noise, *FLOOR)
    if progress is not None:
        floor *= annealing(progress).astype(float)
    return jnp.maximum(size, jnp.where(is_joint, floor, 0))


def _search(
    evaluate: Callable[[Members], Array],
    start: Members,
    slopes: list[Any],
    value: Array,
    size: Array,
    is_noisy: Array,
    slack: Array,
) -> _Trial:
    """The best step that passes, of `size` and its halves."""
    is_finite = jnp.isfinite(value)
    for leaf in jax.tree.leaves(slopes):
        is_finite &= jnp.isfinite(leaf).all()

    trials = [q.trials(slope) for q, slope in zip(start, slopes, strict=True)]

    def going(trial: _Trial) -> Array:
        return is_finite & ~trial.is_over & (trial.tries <= HALVINGS)

    def body(trial: _Trial) -> _Trial:
        size = trial.size
        pairs = zip(start, trials, strict=True)
        dtype = lambda q: jax.tree.leaves(q)[0].dtype
        tried = [trial(size.astype(dtype(q))) for q, trial in pairs]
        forward, backward = (
            jnp.stack([part.sum().astype(float) for part in parts]).sum()
            for parts in list(zip(*tried, strict=True))[1:]
        )
        update = jax.tree.map(jnp.subtract, [one.there for one in tried], start)
        # What `optax.apply_updates` will make of it, rounding and all.
        there = jax.tree.map(jnp.add, start, update)
        is_inside = jnp.stack([q.is_inside().all() for q in there]).all()
        edge = jnp.where(is_inside, trial.edge, size)
        is_inside &= ~is_noisy | (MARGIN * size <= edge)
        # Without noise all is tested but what rounding hides, which is not halved on:
        # a step of this divergence changes the loss by about divergence / size.
        nearness = jnp.where(is_noisy, UNTESTED, jnp.minimum(size * slack, UNTESTED))
        is_near = is_inside & (forward <= nearness)
        is_free = is_near & (is_noisy | (trial.tries == 0))
        is_tested = is_inside & ~is_near
        nan = jnp.full_like(value, jnp.nan)
        value_there = lax.cond(is_tested, evaluate, lambda _: nan, there)
        gain = value - value_there
        is_passed = is_inside & ((gain >= SHARE / size * backward - slack) | is_free)
        # What a conjugate loss would have gained. Where that is reached no shorter step
        # is worth a test.
        promised = (backward + (1 - size) * forward) / size
        is_good = is_passed & (gain >= GOOD * promised)
        is_better = ~trial.is_found | (value_there < trial.best_value)
        is_best = is_passed & is_better
        choose = lambda ours, theirs: jnp.where(is_best, ours, theirs)
        return _Trial(
            size=size / 2,
            tries=trial.tries + 1,
            tests=trial.tests + is_tested.astype(int),
            is_over=is_near | is_good | ~is_better,
            is_found=trial.is_found | is_best,
            best_size=choose(size, trial.best_size),
            best_value=choose(value_there, trial.best_value),
            best_update=jax.tree.map(choose, update, trial.best_update),
            edge=edge,
        )

    zero, false = jnp.zeros((), int), jnp.zeros((), bool)
    first = _Trial(
        size=size,
        tries=zero,
        tests=zero,
        is_over=false,
        is_found=false,
        best_size=jnp.zeros_like(size),
        best_value=jnp.full_like(value, jnp.nan),
        best_update=jax.tree.map(jnp.zeros_like, start),
        edge=jnp.full_like(size, jnp.inf),
    )
    return lax.while_loop(going, body, first)


def _halvings(size: Array, trial: _Trial) -> Array:
    """How often the step taken was halved, or was tried in vain."""
    taken = jnp.where(trial.is_found, trial.best_size, size)
    halved = jnp.round(jnp.log2(size / taken)).astype(trial.tries.dtype)
    return jnp.where(trial.is_found, halved, trial.tries)


def _fingerprint(tree: object) -> Array:
    """A number that changes when a parameter outside the distributions does."""
    nodes = jax.tree.leaves(tree, is_leaf=is_distribution)
    others = [node for node in nodes if not is_distribution(node)]
    # Of bits and not of numbers: a large one must not hide a small one.
    bits = lambda x: lax.bitcast_convert_type(jnp.asarray(x).astype(float), jnp.uint32)
    words = jnp.concatenate(
        [*(bits(x).ravel() for x in others), jnp.zeros(1, "uint32")]
    )
    # Mixed with their places before they are added: two that change places do not
    # cancel.
    first, second, third = (jnp.uint32(k) for k in MIXERS)
    words = (words ^ (jnp.arange(len(words), dtype=jnp.uint32) * first)) * second
    words = (words ^ (words >> 15)) * third
    return (words ^ (words >> 13)).sum(dtype=jnp.uint32)
