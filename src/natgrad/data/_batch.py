"""Some rows of a table, in arrays of one shape."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num


Columns = dict[str, Any]


class _Fields(NamedTuple):
    x: Num[Array | np.ndarray, "B D"]
    y: Array | np.ndarray
    weight: Float[Array | np.ndarray, " B"] | None
    columns: dict[str, Array | np.ndarray]


class Batch(_Fields):
    """Inputs, targets and weights of rows; without weights each row counts once.

    `columns` come with the targets, such as {"exposure": years}: see
    `natgrad.gp.likelihoods`.

    >>> batch = natgrad.data.Batch(x, y)
    >>> batch.x.shape, batch.weight is None
    ((50, 1), True)
    """

    def __new__(cls, x: Any, y: Any, weight: Any = None, columns: Any = None):
        return super().__new__(cls, x, y, weight, {} if columns is None else columns)
