"""Kernels k(x, z) of two sets of points, which add and multiply."""

from natgrad.gp.kernels._base import (
    AbstractKernel as AbstractKernel,
    AbstractStationary as AbstractStationary,
    Constant as Constant,
    OnInputs as OnInputs,
    Separate as Separate,
)
from natgrad.gp.kernels._function import FromFunction as FromFunction
from natgrad.gp.kernels._products import Linear as Linear, Polynomial as Polynomial
from natgrad.gp.kernels._stationary import (
    RBF as RBF,
    Matern12 as Matern12,
    Matern32 as Matern32,
    Matern52 as Matern52,
    Periodic as Periodic,
    RationalQuadratic as RationalQuadratic,
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
