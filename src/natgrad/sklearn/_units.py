"""Likelihoods that are given as objects: from the units of the table to the model's."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from natgrad.gp import likelihoods


POWERS: dict[type, dict[str, int]] = {
    likelihoods.Gaussian: {"log_variance": 2},
    likelihoods.StudentT: {"log_scale": 1},
}
"""Parameters that have a unit, and the power of the target's unit that they have."""


def in_units(likelihood: Any, scale: float) -> Any:
    """The same likelihood for targets that are divided by `scale`."""
    if isinstance(likelihood, likelihoods.Censored):
        return likelihoods.Censored(in_units(likelihood.noise, scale))
    for name, power in POWERS.get(type(likelihood), {}).items():
        moved = getattr(likelihood, name) - power * math.log(scale)
        likelihood = eqx.tree_at(
            lambda tree, at=name: getattr(tree, at), likelihood, moved
        )
    return likelihood


def widened(tree: Any) -> Any:
    """The same object with its numbers in 64 bits.

    JAX makes them in 32 by default, and they would be trained so.
    """
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf,
        tree,
    )
