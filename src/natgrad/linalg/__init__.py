"""Positive definite matrices, and factors of them that batch without a deadlock."""

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
