"""The natural gradient, and the Optax transformations that apply it to a tree."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from natgrad.families._base import Q, is_distribution, is_live


X = TypeVar("X")
Y = TypeVar("Y")


def natural_gradient(q: Q, grad: object) -> Q:
    """Turns the gradient of a loss at `q` into its natural gradient at `q`.

    This is equation (10) of the paper, ∇̃_ξ L = (∂ξ/∂θ) (∂L/∂η)ᵀ: one vjp and one jvp
    through the parameterization, or a closed form that the distribution knows. The
    gradient is ∂L/∂ξ, an object of the class of `q`, or ∂L/∂η, a tree shaped like the
    statistics, which `q.slope` returns. With ∂L/∂η only the jvp is left.

    >>> step = natgrad.natural_gradient(q, jax.grad(loss)(q))
    >>> print(step.linear, q.linear - p.linear)  # it points from p to q
    [-1.] [-1.]
    """
    return q.natural_gradient(grad) if is_distribution(grad) else q.direction(grad)


def double_vjp(function: Callable[[X], Y], at: X, change: X) -> Y:
    """A jvp from two vjps, the paper's forward-mode trick (Townsend 2017).

    The pull-back is linear in the vector it pulls, so its own pull-back is the
    push-forward. It equals `jax.jvp`, which the library uses.
    """
    value, pull_back = jax.vjp(function, at)
    _, pull_back_again = jax.vjp(pull_back, jax.tree.map(jnp.zeros_like, value))
    return pull_back_again((change,))[0]


def map_distributions(function: Callable[..., Any], tree: object, *rest: X) -> X:
    """Applies `function` at every distribution of a tree; all else is as in `rest[-1]`.

    A distribution that Optax has masked is left alone.
    """

    def at_node(node: Any, *others: Any) -> Any:
        if is_live(node):
            return function(node, *others)
        return others[-1]

    return jax.tree.map(at_node, tree, *rest, is_leaf=is_distribution)


def scale_by_inverse_fisher() -> optax.GradientTransformation:
    """Replaces the gradient of every distribution in a tree by its natural gradient.

    Leaves that belong to no distribution pass through unchanged.

    Raises:
        ValueError: If `update` gets no parameters.

    >>> tx = natgrad.scale_by_inverse_fisher()
    >>> updates, _ = tx.update(jax.grad(loss)(q), tx.init(q), q)
    >>> print(updates.linear, updates.quadratic.full)
    [-1.] [[-1.]]
    """

    return _at_distributions("scale_by_inverse_fisher", natural_gradient)


def stay_inside() -> optax.GradientTransformation:
    """Halves the update of a distribution until it leads to a member of the family.

    Put it last in a chain if the coordinates are constrained, as those of `Full` are.
    An update that leads outside at every size, or is not finite, becomes zero.

    Raises:
        ValueError: If `update` gets no parameters.

    >>> tx = optax.chain(natgrad.ngd(10.0), natgrad.stay_inside())  # far too long
    >>> updates, _ = tx.update(jax.grad(lambda q: -loss(q))(q), tx.init(q), q)
    >>> bool(optax.apply_updates(q, updates).is_inside())
    True
    """

    return _at_distributions("stay_inside", _shortened)


def _at_distributions(
    name: str, function: Callable[..., Any]
) -> optax.GradientTransformation:
    def update(updates: X, params: object) -> X:
        if params is None:
            raise ValueError(
                f"{name} needs the parameters: call update(grads, state, params)"
            )
        return map_distributions(function, params, updates)

    return optax.stateless(update)


def _shortened(q: Q, update: Q) -> Q:
    def scaled(size: jax.Array) -> Q:
        # A product would turn zero times infinity into NaN.
        return jax.tree.map(lambda u: jnp.where(size > 0, size * u, 0), update)

    def is_outside(size: jax.Array) -> jax.Array:
        return ~jax.tree.map(jnp.add, q, scaled(size)).is_inside().all()

    def halved(size: jax.Array) -> jax.Array:
        return jnp.where(size > smallest, size / 2, 0)

    dtype = jax.tree.leaves(q)[0].dtype
    smallest = float(jnp.finfo(dtype).eps)
    going = lambda size: is_outside(size) & (size > 0)
    return scaled(jax.lax.while_loop(going, halved, jnp.ones((), dtype)))
