"""Positive definite matrices in several coordinates."""

from natgrad.linalg._storage import AbstractPositiveDefinite, Full, Log, Sqrt


__all__ = ["Sqrt", "Full", "Log", "AbstractPositiveDefinite"]
