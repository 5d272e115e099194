"""Where a kernel may begin, in scaled units."""

import math
from typing import Any

import numpy as np

from natgrad import _registry as registry
from natgrad.gp import as_kernel
from natgrad.sklearn._units import widened


def initial_kernels(kernel: Any, columns: int) -> list[Any]:
    """As in the paper, far smoother, and far rougher; or the kernel that was given."""
    if not isinstance(kernel, str):
        return [widened(as_kernel(kernel))]
    make, root = registry.kernel(kernel), np.full(columns, math.sqrt(columns))
    return [make(root, 2.0), make(3 * root, 10.0), make(root / 10, 1.0)]
