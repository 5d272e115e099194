"""Some rows of a table, in arrays of one shape."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num


Columns = dict[str, Any]


class Batch(NamedTuple):
    """Inputs, targets and weights of rows; without weights each row counts once.

    `columns` come with the targets, such as {"exposure": years}: see
    `natgrad.gp.likelihoods`.

    >>> batch = natgrad.data.Batch(x, y)
    >>> batch.x.shape, batch.weight is None
    ((50, 1), True)
    """

    x: Num[Array | np.ndarray, "B D"]
    y: Array | np.ndarray
    weight: Float[Array | np.ndarray, " B"] | None = None
    columns: Columns = {}
