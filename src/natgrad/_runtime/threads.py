"""As many BLAS threads as the matrices deserve, while natgrad computes.

JAX's LAPACK on a CPU is SciPy's OpenBLAS. It starts a thread for each core, and these
spin while they wait. Matrices of a few hundred rows gain nothing by that, and a second
program on the same machine makes it many times slower.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from threadpoolctl import ThreadpoolController


LARGE = 1500
"""Rows of a matrix from which more than one thread pays."""

_lock, _users, _limits = threading.Lock(), list[object](), list[Any]()


@contextlib.contextmanager
def few_threads(size: int) -> Iterator[None]:
    """Limits BLAS to one thread for matrices of `size` rows, unless that is large.

    The first thread that enters sets the limit, and the last that leaves restores what
    was. OpenBLAS takes the number from the main thread only; from other threads this
    has no effect.
    """
    if size >= LARGE:
        yield
        return
    me = object()
    try:  # Ctrl-C may come before any line
        with _lock:
            _users.append(me)
            if not _limits:  # the BLAS of SciPy is loaded: JAX has imported it
                _limits.append(ThreadpoolController().limit(limits=1, user_api="blas"))
        yield
    finally:
        with _lock:
            if me in _users:
                _users.remove(me)
            while _limits and not _users:
                _limits.pop().restore_original_limits()


def largest(tree: Any) -> int:
    """The number of rows of the largest square matrix in a tree."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
    squares = [s[-1] for s in shapes if len(s) > 1 and s[-1] == s[-2]]
    return max(squares, default=0)
