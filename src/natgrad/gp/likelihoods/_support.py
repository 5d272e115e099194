"""Where the targets of a likelihood live, and what its parameters mean."""

import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float


Scalar = Float[Array, ""]

HALVINGS = 54
"""How often an interval is halved for a quantile."""


class Support(enum.Enum):
    """Where the targets of a likelihood live.

    `low` is below all targets, and `high` is the largest or above them. `inside` is one
    that every likelihood of the support allows.

    >>> gp.likelihoods.Support("positive").low
    0.0
    """

    REAL = "real", -math.inf, math.inf, 0.0, "finite targets"
    POSITIVE = "positive", 0.0, math.inf, 1.0, "positive targets"
    UNIT = "unit", 0.0, 1.0, 0.5, "targets between 0 and 1"
    COUNT = "count", -1.0, math.inf, 1.0, "counts 0, 1, 2, ..."
    SUCCESSES = "successes", -1.0, math.inf, 1.0, "counts 0, 1, 2, ..."
    GRADES = "grades", -1.0, math.inf, 0.0, "grades 0, 1, 2, ..."
    LABELS = "labels", -1.0, math.inf, 0.0, "labels 0, 1, 2, ..."

    def __init__(self, _: str, low: float, high: float, inside: float, needs: str):
        self.low, self.high, self.inside, self.needs = low, high, inside, needs

    def __new__(cls, name: str, *_: object):
        member = object.__new__(cls)
        member._value_ = name
        return member

    @property
    def is_whole(self) -> bool:
        """Whether targets are whole numbers."""
        return self.low == -1

    @property
    def farthest(self) -> float:
        """How far from zero the real numbers of targets may be."""
        return 40.0 if self is Support.REAL else 700.0

    def allows(self, y: np.ndarray) -> np.ndarray:
        """Which numbers are in the support."""
        is_inside = np.isfinite(y) & (y > self.low) & (y < self.high)
        return is_inside & (np.floor(y) == y) if self.is_whole else is_inside

    def at(self, t: Any, xp: Any = np) -> Any:
        """The target of a real number t, which rises with it.

        Between whole numbers it is what lies between them.
        """
        if self.is_whole:
            return xp.expm1(t)
        if self is Support.POSITIVE:
            return xp.exp(t)
        return xp.exp(-xp.logaddexp(0.0, -t)) if self is Support.UNIT else xp.sinh(t)


class Parameter(NamedTuple):
    """A parameter of a likelihood, for its summary and for targets in other units.

    `field` has its logarithm, or another form without bounds; `shown` is the property
    with the value that a summary prints. `power` is that of the targets' unit in the
    exponential of the field: 2 for a variance.

    >>> gp.likelihoods.Parameter("log_scale", "scale", "noise (scale)", power=1).label
    'noise (scale)'
    """

    field: str
    shown: str
    label: str
    power: int = 0


def quantile(
    cdf: Callable[[Scalar], Scalar], level: Scalar, support: Support, centre: Scalar
) -> Scalar:
    """The smallest y of a support at which a distribution function reaches a level.

    Real numbers are searched around the centre. The number of steps is fixed, so that
    a graph without loops can have them too.
    """

    def at(t: Scalar) -> Scalar:
        y = support.at(t, jnp)
        if support.is_whole:
            return jnp.abs(jnp.ceil(y))  # of −0 too
        return centre + y if support is Support.REAL else y

    def halve(_: object, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        is_short = cdf(at(middle)) < level
        return jnp.where(is_short, middle, low), jnp.where(is_short, high, middle)

    limits = jnp.finfo(level.dtype)
    # Beyond 1/ε not all whole numbers exist.
    most = 1 / float(limits.eps) if support.is_whole else float(limits.max) / 8
    high = jnp.full_like(level, min(support.farthest, math.log(most)))
    low = jnp.full_like(level, -1.0) if support.is_whole else -high
    return at(lax.fori_loop(0, HALVINGS, halve, (low, high))[1])
