"""Exponential families; each class is a coordinate system."""

from natgrad.families import (
    beta,
    categorical,
    diagonal,
    dirichlet,
    gamma,
    gaussian,
    inverse_gamma,
    low_rank,
    normal_inverse_wishart,
    wishart,
)
from natgrad.families._base import AbstractDistribution
from natgrad.families._implicit import AbstractImplicit


__all__ = [
    "AbstractDistribution",
    "AbstractImplicit",
    "gaussian",
    "diagonal",
    "gamma",
    "beta",
    "dirichlet",
    "categorical",
    "wishart",
    "inverse_gamma",
    "normal_inverse_wishart",
    "low_rank",
]
