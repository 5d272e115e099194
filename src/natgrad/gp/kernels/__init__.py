"""Kernels k(x, z) of two sets of points, which add and multiply."""

from natgrad.gp.kernels._base import (
    AbstractKernel,
    AbstractStationary,
    Constant,
    FromFunction,
    OnInputs,
    Separate,
)
from natgrad.gp.kernels._products import Linear, Polynomial
from natgrad.gp.kernels._stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
)


__all__ = [
    "Matern52",
    "Matern32",
    "Matern12",
    "RBF",
    "RationalQuadratic",
    "Periodic",
    "Linear",
    "Polynomial",
    "Constant",
    "OnInputs",
    "Separate",
    "FromFunction",
    "AbstractKernel",
    "AbstractStationary",
]
