"""Where a kernel may begin, in scaled units."""

import math
from typing import Any

import numpy as np

from natgrad.gp import as_kernel, kernels
from natgrad.sklearn._units import widened


KERNELS = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rbf": kernels.RBF,
}


def initial_kernels(kernel: Any, columns: int) -> list[Any]:
    """As in the paper, far smoother, and far rougher; or the kernel that was given."""
    if not isinstance(kernel, str):
        return [widened(as_kernel(kernel))]
    make, root = KERNELS[kernel], np.full(columns, math.sqrt(columns))
    return [make(root, 2.0), make(3 * root, 10.0), make(root / 10, 1.0)]
