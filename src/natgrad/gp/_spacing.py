"""Steps of the inducing inputs in units of their own spacing."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from natgrad._optim import annealed
from natgrad.gp._distances import squared_distance
from natgrad.train._rules import RATE


FACTOR = 3.0
"""What the rate of the inducing inputs is multiplied by."""

LEAST = 0.01
"""The least spacing, as a part of the middle one: of two equal inputs one must move."""


class SpacingState(NamedTuple):
    """How far each inducing input was from its neighbour at the start."""

    distance: Float[Array, " M"]


def scale_by_spacing(factor: float = FACTOR) -> optax.GradientTransformation:
    """Scales the update of each inducing input by how far its nearest neighbour was.

    Adam's steps are as long as its rate whatever the gradient, and whether that is a
    short way for an inducing input depends on how the data lie.
    """

    def init(params: Any) -> SpacingState:
        return SpacingState(spacing(params.inducing))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moves = factor * state.distance[:, None] * updates.inducing
        return eqx.tree_at(lambda model: model.inducing, updates, moves), state

    return optax.GradientTransformation(init, update)


def default_hyperparameters() -> optax.GradientTransformationExtraArgs:
    """What moves all but q by default.

    The page docs/explanation/hyperparameters.md says why.
    """
    return annealed(optax.chain(optax.scale_by_adam(), scale_by_spacing()), RATE)


def spacing(z: Float[Array, "M D"]) -> Float[Array, " M"]:
    """How far each row is from the nearest other one, as a mean over the columns."""
    if len(z) < 2:
        return jnp.ones(len(z), z.dtype)
    squared = squared_distance(z, z, jnp.ones((), z.dtype)) / z.shape[1]
    squared = jnp.where(jnp.eye(len(z), dtype=bool), jnp.inf, squared)
    nearest = jnp.sqrt(squared.min(1))
    return jnp.maximum(nearest, LEAST * jnp.median(nearest))
