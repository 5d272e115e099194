"""Optimizers for trees that contain distributions, as compositions of Optax."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from natgrad._natural import map_distributions, natural_gradient
from natgrad.families._base import Q, is_distribution


Tree = TypeVar("Tree")
Value = TypeVar("Value")


class NaturalState(NamedTuple):
    """How many steps were taken, and how many of them were not finite."""

    steps: Int[Array, ""]
    not_finite: Int[Array, ""]


def ngd(learning_rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
    """Natural gradient descent.

    The step is dimensionless if the loss is in nats: a step of size 1 solves a
    conjugate model in natural parameters. Leaves that belong to no distribution do not
    move; `split` gives them an optimizer of their own. `learning_rate` is a number or
    an Optax schedule.

    A step that is too long for its loss leaves the family, and the parameters are NaN
    from then on. The state counts `steps` and those that were `not_finite`: check it in
    a loop of your own. `natgrad.fit` refuses such steps, and `stay_inside` and
    `guarded_ngd` shorten them.

    >>> tx = natgrad.ngd(1.0)
    >>> updates, state = tx.update(jax.grad(loss)(q), tx.init(q), q)
    >>> state.steps.item(), state.not_finite.item()
    (1, 0)
    >>> q = optax.apply_updates(q, updates)
    >>> print(q.linear, p.linear)  # one step reaches the optimum
    [1.] [1.]
    """

    def change(q: Q, grad: Any, size: Array) -> Q:
        return jax.tree.map(lambda u: -size * u, natural_gradient(q, grad))

    return _natural_steps("ngd", learning_rate, change)


def mirror_descent(
    learning_rate: optax.ScalarOrSchedule,
) -> optax.GradientTransformation:
    """Natural gradient descent in θ itself, whatever coordinates are stored.

    `ngd` adds the natural gradient to the coordinates, so its path depends on them
    beyond first order. `mirror_descent` takes the step θ − size · ∂L/∂η: the same
    distribution in all coordinates. A step of size 1 solves a conjugate model in any of
    them. If the loss is not conjugate, a long step can leave the family and is then not
    finite; `guarded_ngd` takes the same steps with a test. Leaves that belong to no
    distribution do not move. `learning_rate` is a number or an Optax schedule.

    >>> q = gaussian.Moments(jnp.zeros(1), Sqrt(jnp.eye(1)))
    >>> tx = natgrad.mirror_descent(1.0)
    >>> updates, state = tx.update(jax.grad(loss)(q), tx.init(q), q)
    >>> bool(loss(optax.apply_updates(q, updates)) < 1e-9)  # the optimum
    True
    """

    def change(q: Q, grad: Any, size: Array) -> Q:
        return jax.tree.map(jnp.subtract, q.path(grad)(size), q)

    return _natural_steps("mirror_descent", learning_rate, change)


def _natural_steps(
    name: str,
    learning_rate: optax.ScalarOrSchedule,
    change: Callable[[Any, Any, Array], Any],
) -> optax.GradientTransformation:
    """Moves each distribution by change(q, gradient, size)."""

    def init(params: object) -> NaturalState:
        return NaturalState(jnp.zeros((), int), jnp.zeros((), int))

    def update(
        updates: Tree, state: Any, params: object = None
    ) -> tuple[Tree, NaturalState]:
        if params is None:
            raise ValueError(
                f"{name} needs the parameters: call update(grads, state, params)"
            )
        size = learning_rate(state.steps) if callable(learning_rate) else learning_rate

        def moved(q: Q, grad: Any, _: Q) -> Q:
            return change(q, grad, jnp.asarray(size, jax.tree.leaves(q)[0].dtype))

        still = jax.tree.map(jnp.zeros_like, params)
        moves = map_distributions(moved, params, updates, still)
        finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(moves)]
        is_lost = ~jnp.stack([*finite, jnp.ones((), bool)]).all()
        lost = state.not_finite + is_lost.astype(int)
        return moves, NaturalState(state.steps + 1, lost)

    return optax.GradientTransformation(init, update)


def log_linear(initial: float, final: float, steps: int) -> optax.Schedule:
    """The paper's schedule: log-linear from `initial` to `final`, then constant.

    >>> schedule = natgrad.log_linear(0.001, 0.1, steps=2)
    >>> [round(float(schedule(step)), 4) for step in range(4)]
    [0.001, 0.01, 0.1, 0.1]
    """
    return optax.exponential_decay(initial, steps, final / initial, end_value=final)


def annealing(progress: ArrayLike) -> Float[Array, ""]:
    """(1 − progress)²: from 1 at the beginning of a run to 0 at its end."""
    return (1 - jnp.clip(jnp.asarray(progress), 0, 1)) ** 2


def annealed(
    tx: optax.GradientTransformation, learning_rate: float
) -> optax.GradientTransformationExtraArgs:
    """Scales the updates of `tx`, such as `optax.scale_by_adam()`, by a falling rate.

    The rate is `learning_rate` times (1 − `progress`)², where `progress` is the share
    of the run that is over. Pass `progress` to `update`. A run of any length, in steps
    or in minutes, then ends at rest.

    Raises:
        ValueError: If `update` gets no `progress`.

    >>> tx = natgrad.annealed(optax.identity(), 0.1)
    >>> for progress in (0.0, 0.5, 1.0):
    ...     update, _ = tx.update(jnp.ones(()), tx.init(0.0), progress=progress)
    ...     print(f"{abs(update):.3f}")
    0.100
    0.025
    0.000
    """
    inner = optax.with_extra_args_support(tx)

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        if "progress" not in extra:
            raise ValueError(
                "annealed needs to know how much of the run is over: call "
                "update(grads, state, params, progress=progress)"
            )
        scale = -learning_rate * annealing(extra["progress"])
        updates, state = inner.update(updates, state, params, **extra)
        return jax.tree.map(lambda u: scale.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


class SplitState(NamedTuple):
    """The states of the two optimizers of `split`."""

    distributions: optax.OptState
    hyperparameters: optax.OptState


def split(
    distributions: optax.GradientTransformation | None,
    hyperparameters: optax.GradientTransformation | None,
) -> optax.GradientTransformationExtraArgs:
    """One optimizer for the distributions in a tree and another for all other leaves.

    Each sees its own part, and None keeps its part still. `value_fn`, if given, still
    takes the whole tree.

    Raises:
        ValueError: If `update` gets no parameters.

    >>> params = {"q": q, "scale": jnp.ones(())}
    >>> tx = natgrad.split(natgrad.ngd(1.0), optax.adam(0.01))
    >>> total = lambda params: loss(params["q"]) + params["scale"] ** 2
    >>> updates, _ = tx.update(jax.grad(total)(params), tx.init(params), params)
    >>> print(updates["q"].linear, f"{updates['scale']:.3f}")
    [1.] -0.010
    >>> tx = natgrad.split(None, optax.sgd(0.1))  # moves only the scale
    >>> updates, _ = tx.update(params, tx.init(params), params)
    >>> print(updates["q"].quadratic.full, updates["scale"])
    [[0.]] -0.1
    """
    ours = optax.with_extra_args_support(distributions or _still())
    theirs = optax.with_extra_args_support(hyperparameters or _still())

    def init(params: Any) -> SplitState:
        kept, rest = _parts(params, params)
        return SplitState(ours.init(kept), theirs.init(rest))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, SplitState]:
        if params is None:
            raise ValueError(
                "a tree with distributions is split by its parameters: "
                "call update(grads, state, params)"
            )
        kept, rest = _parts(params, params)
        kept_updates, rest_updates = _parts(params, updates)
        if extra.get("grad") is not None:
            kept_grad, rest_grad = _parts(params, extra["grad"])
        else:
            kept_grad, rest_grad = kept_updates, rest_updates
        value_fn = extra.get("value_fn")
        if value_fn is not None:
            whole = bound(value_fn, extra)
            kept_fn = lambda kept: whole(_joined(params, kept, rest))
            rest_fn = lambda rest: whole(_joined(params, kept, rest))
        else:
            kept_fn = rest_fn = None
        ours_extra = {**extra, "grad": kept_grad, "value_fn": kept_fn, "rest": rest}
        theirs_extra = {**extra, "grad": rest_grad, "value_fn": rest_fn}
        kept_updates, ours_state = ours.update(
            kept_updates, state.distributions, kept, **ours_extra
        )
        rest_updates, theirs_state = theirs.update(
            rest_updates, state.hyperparameters, rest, **theirs_extra
        )
        return (
            _joined(params, kept_updates, rest_updates),
            SplitState(ours_state, theirs_state),
        )

    return optax.GradientTransformationExtraArgs(init, update)


def bound(
    value_fn: Callable[..., Value], extra: Mapping[str, Any]
) -> Callable[[Any], Value]:
    """`value_fn` of the parameters alone, its other arguments taken from `extra`.

    Optax's line searches do the same, so that a batch can be an argument of `update`.
    """
    names = list(inspect.signature(value_fn).parameters)[1:]
    arguments = {name: extra[name] for name in names if name in extra}
    return lambda params: value_fn(params, **arguments)


def _still() -> optax.GradientTransformation:
    # Like the parameters, not the updates: those may hold slopes of another shape.
    return optax.stateless(lambda _, params: jax.tree.map(jnp.zeros_like, params))


def _parts(params: object, tree: Tree) -> tuple[Tree, Tree]:
    """The part of a tree at the distributions of `params`, and the rest of it."""

    def part(wanted: bool) -> Tree:
        keep = lambda node, leaf: (
            leaf if is_distribution(node) == wanted else optax.MaskedNode()
        )
        return jax.tree.map(keep, params, tree, is_leaf=is_distribution)

    return part(True), part(False)


def _joined(params: object, kept: Tree, rest: Tree) -> Tree:
    choose = lambda node, ours, theirs: ours if is_distribution(node) else theirs
    return jax.tree.map(choose, params, kept, rest, is_leaf=is_distribution)
