"""Some rows of a table, in arrays of one shape."""

from typing import NamedTuple

from jaxtyping import Array, Float, Shaped


class Batch(NamedTuple):
    """Inputs, targets and how much each row counts; left out, each counts once."""

    x: Float[Array, "B D"]
    y: Shaped[Array, " B"]
    weight: Float[Array, " B"] | None = None
