"""As many BLAS threads as the matrices deserve, while natgrad computes.

JAX's LAPACK on a CPU is SciPy's OpenBLAS. It starts a thread for each core, and these
spin while they wait. Matrices of a few hundred rows gain nothing by that, and a second
program on the same machine makes it many times slower.
"""

import contextlib
from typing import Any

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from natgrad._runtime.process_setting import ProcessSetting


LARGE = 1500
"""Rows of a matrix from which more than one thread pays."""

_limit: Any = None


def _limit_blas() -> None:
    global _limit
    # The BLAS that SciPy brings is loaded by now: JAX has imported it.
    _limit = ThreadpoolController().limit(limits=1, user_api="blas")


def _restore_blas() -> None:
    _limit.restore_original_limits()


_one_thread = ProcessSetting(_limit_blas, _restore_blas)


def few_threads(size: int) -> contextlib.AbstractContextManager[None]:
    """Limits BLAS to one thread for matrices of `size` rows, unless that is large.

    OpenBLAS takes the number from the main thread only; from other threads this has no
    effect.
    """
    return contextlib.nullcontext() if size >= LARGE else _one_thread.held()


def largest(tree: Any) -> int:
    """The number of rows of the largest square matrix in a tree."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
    squares = [s[-1] for s in shapes if len(s) > 1 and s[-1] == s[-2]]
    return max(squares, default=0)
