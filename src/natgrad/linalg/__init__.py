"""Positive definite matrices in several coordinates."""

from natgrad.linalg._storage import (
    AbstractPositiveDefinite as AbstractPositiveDefinite,
    Full as Full,
    Log as Log,
    Sqrt as Sqrt,
)


__all__ = [
    "Sqrt",
    "Full",
    "Log",
    "AbstractPositiveDefinite",
]
