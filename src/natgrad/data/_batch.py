"""Some rows of a table, in arrays of one shape."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num, Shaped


class Batch(NamedTuple):
    """Inputs, targets and how much each row counts; left out, each counts once."""

    x: Num[Array | np.ndarray, "B D"]
    y: Shaped[Array | np.ndarray, " B"]
    weight: Float[Array | np.ndarray, " B"] | None = None
