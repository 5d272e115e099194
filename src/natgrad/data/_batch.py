"""Some rows of a table, in arrays of one shape."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num, Shaped


class Batch(NamedTuple):
    """Inputs, targets and weights of rows; without weights each row counts once.

    >>> batch = natgrad.data.Batch(x, y)
    >>> batch.x.shape, batch.weight is None
    ((50, 1), True)
    """

    x: Num[Array | np.ndarray, "B D"]
    y: Shaped[Array | np.ndarray, " B"]
    weight: Float[Array | np.ndarray, " B"] | None = None
