"""Exponential families; each class is a coordinate system."""

from natgrad.families import (
    beta as beta,
    categorical as categorical,
    diagonal as diagonal,
    dirichlet as dirichlet,
    gamma as gamma,
    gaussian as gaussian,
    inverse_gamma as inverse_gamma,
    low_rank as low_rank,
    normal_inverse_wishart as normal_inverse_wishart,
    wishart as wishart,
)
from natgrad.families._base import AbstractDistribution as AbstractDistribution
from natgrad.families._implicit import AbstractImplicit as AbstractImplicit


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
