"""What data add to a prior."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float


class Sites(NamedTuple):
    """What data add to a prior: exp(linear · f − precision · f²/2), for each row.

    They are natural parameters of a Gaussian in f, less the mean function.
    """

    linear: Float[Array | np.ndarray, "*L N"]
    precision: Float[Array | np.ndarray, "*L N"]
