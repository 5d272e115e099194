"""Monotone functions of a real target, in whose values a model is fitted."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np


Kind = Literal["identity", "log", "log1p", "asinh"]


class Warp(NamedTuple):
    """z = (w((y − shift)/unit) − centre)/scale, for w of a kind."""

    kind: Kind = "identity"
    shift: float = 0.0
    unit: float = 1.0
    centre: float = 0.0
    scale: float = 1.0

    def to(self, y: Any) -> np.ndarray:
        y = (np.asarray(y, float) - self.shift) / self.unit
        with np.errstate(divide="ignore", invalid="ignore"):
            z = y if self.kind == "identity" else getattr(np, self.kind)(y)
        if self.kind in ("log", "log1p"):
            z = np.where(y > (-1 if self.kind == "log1p" else 0), z, -np.inf)
        return (z - self.centre) / self.scale

    def back(self, z: Any) -> np.ndarray:
        z = self.centre + self.scale * np.asarray(z, float)
        inverse = {
            "identity": np.array,
            "log": np.exp,
            "log1p": np.expm1,
            "asinh": np.sinh,
        }
        with np.errstate(over="ignore"):
            return self.shift + self.unit * inverse[self.kind](z)

    def log_slope(self, y: Any) -> np.ndarray:
        """log dz/dy, and 0 where there is no such target."""
        y = (np.asarray(y, float) - self.shift) / self.unit
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = {
                "identity": np.zeros_like,
                "log": lambda y: -np.log(y),
                "log1p": lambda y: -np.log1p(y),
                "asinh": lambda y: -np.log1p(y**2) / 2,
            }[self.kind](y)
        slope = np.where(np.isfinite(slope), slope, 0)
        return slope - math.log(self.unit) - math.log(self.scale)


def warp_of(kind: Kind, y: np.ndarray, weight: np.ndarray) -> Warp:
    """The warp of a kind after which these targets have mean 0 and variance 1."""
    shift, unit = 0.0, 1.0
    if kind == "asinh":
        shift = float(np.median(y))
        unit = float(2 * np.median(np.abs(y - shift))) or float(np.std(y)) or 1.0
    elif kind == "log1p":
        unit = 1.0
    z = Warp(kind, shift, unit).to(y)
    part = weight / weight.sum()
    centre = float(part @ z)
    scale = math.sqrt(float(part @ (z - centre) ** 2))
    return Warp(
        kind,
        shift,
        unit,
        centre,
        scale if scale > 1e-12 * max(abs(centre), 1e-300) else 1.0,
    )


def candidates(y: np.ndarray) -> list[Kind]:
    """The warps that are defined for such targets."""
    found: list[Kind] = ["identity", "asinh"]
    if y.min() > 0:
        found.append("log")
    if y.min() >= 0:
        found.append("log1p")
    return found
