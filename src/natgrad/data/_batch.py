"""Some rows of a table, in arrays of one shape."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Num

from natgrad.errors import InputError


Columns = dict[str, Any]


class Batch(NamedTuple):
    """Inputs, targets and weights of rows; without weights each row counts once.

    Targets are an array, or a dictionary of "y" and columns that come with it, such as
    "exposure": see `natgrad.gp.likelihoods`.

    >>> batch = natgrad.data.Batch(x, y)
    >>> batch.x.shape, batch.weight is None
    ((50, 1), True)
    """

    x: Num[Array | np.ndarray, "B D"]
    y: Any
    weight: Float[Array | np.ndarray, " B"] | None = None

    @property
    def targets(self) -> Any:
        """The targets themselves."""
        return split(self.y)[0]

    @property
    def target_columns(self) -> Columns:
        """The columns that come with the targets."""
        return split(self.y)[1]


def split(y: Any) -> tuple[Any, Columns]:
    """The targets themselves, and the columns that come with them."""
    if not isinstance(y, Mapping):
        return y, {}
    columns = dict(y)
    if "y" not in columns:
        raise InputError(
            f"the targets are columns {', '.join(map(repr, columns))}; one of them "
            "should be 'y'"
        )
    return columns.pop("y"), columns
