"""Positive definite matrices in several coordinates, and triangular solves."""

from natgrad.linalg._storage import (
    AbstractPositiveDefinite as AbstractPositiveDefinite,
    Full as Full,
    Log as Log,
    Sqrt as Sqrt,
    cholesky as cholesky,
)
from natgrad.linalg._triangular import (
    solve_lower as solve_lower,
    solve_lower_transposed as solve_lower_transposed,
)


__all__ = [
    "Sqrt",
    "Full",
    "Log",
    "AbstractPositiveDefinite",
    "cholesky",
    "solve_lower",
    "solve_lower_transposed",
]
