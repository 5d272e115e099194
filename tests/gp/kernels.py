"""One kernel of each kind, with its formula: the cases at which laws are tested."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from natgrad.gp import kernels
from tests.points import EXTENSIONS


class Case(NamedTuple):
    """A kernel, the formula it should be, and how closely where that is hard."""

    kernel: kernels.AbstractKernel
    formula: Callable[[np.ndarray, np.ndarray], np.ndarray]
    coincident: float = 1e-12  # a cusp turns a rounding of r² into its root
    far: float = 1e-6


ROUGH = 1e-7
EACH = np.asarray([0.6, 1.1, 2.3])
STATIONARY = {
    "matern12": (kernels.Matern12, lambda r: np.exp(-r), ROUGH),
    "matern32": (kernels.Matern32, lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r)),
    "matern52": (
        kernels.Matern52,
        lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
    ),
    "rbf": (kernels.RBF, lambda r: np.exp(-(r**2) / 2)),
    "rational": (
        lambda ell, variance: kernels.RationalQuadratic(ell, variance, 0.7),
        lambda r: (1 + r**2 / 1.4) ** -0.7,
    ),
    "wendland": (
        EXTENSIONS["Wendland"],
        lambda r: np.maximum(1 - r, 0) ** 4 * (4 * r + 1),
    ),
}


def pairs(x, z):
    """x − z for all pairs, the array that kernels do without."""
    return x[:, None, :] - z[None, :, :]


def stationary_cases():
    for name, (kind, of_distance, *limits) in STATIONARY.items():
        for scales, lengthscale in {"one": 0.8, "each": EACH}.items():

            def formula(x, z, lengthscale=lengthscale, of_distance=of_distance):
                r = np.sqrt(((pairs(x, z) / lengthscale) ** 2).sum(-1))
                return 1.7 * of_distance(r)

            yield f"{name}.{scales}", Case(kind(lengthscale, 1.7), formula, *limits)


def periodic(x, z, lengthscale, period):
    sines = np.sin(np.pi * pairs(x, z) / period) / lengthscale
    return 1.7 * np.exp(-2 * (sines**2).sum(-1))


CASES: dict[str, Case] = (
    dict(stationary_cases())
    | {
        "periodic.one": Case(
            kernels.Periodic(0.8, 1.7, 1.9),
            lambda x, z: periodic(x, z, 0.8, 1.9),
            far=np.inf,  # which period it is in is not known there
        ),
        "periodic.each": Case(
            kernels.Periodic(EACH, 1.7, EACH[::-1] + 1),
            lambda x, z: periodic(x, z, EACH, EACH[::-1] + 1),
            far=np.inf,
        ),
        "linear.one": Case(kernels.Linear(0.8), lambda x, z: 0.8 * x @ z.T),
        "linear.each": Case(kernels.Linear(EACH), lambda x, z: x * EACH @ z.T),
        "polynomial.one": Case(
            kernels.Polynomial(3, 0.8, 1.7, 0.4),
            lambda x, z: 1.7 * (x @ z.T / 0.64 + 0.4) ** 3,
        ),
        "polynomial.each": Case(
            kernels.Polynomial(2, EACH, 1.7, 0.4),
            lambda x, z: 1.7 * (x / EACH**2 @ z.T + 0.4) ** 2,
        ),
        "constant": Case(
            kernels.Constant(0.9), lambda x, z: np.full((len(x), len(z)), 0.9)
        ),
        "sum": Case(
            kernels.RBF(0.8) + kernels.Linear(0.5),
            lambda x, z: np.exp(-(pairs(x, z) ** 2).sum(-1) / 1.28) + 0.5 * x @ z.T,
        ),
        "product": Case(
            2.0 * (kernels.RBF(0.8) * kernels.Linear(0.5)),
            lambda x, z: np.exp(-(pairs(x, z) ** 2).sum(-1) / 1.28) * (x @ z.T),
        ),
        "on_inputs": Case(
            kernels.OnInputs(kernels.RBF(EACH[:2]), (2, 0)),
            lambda x, z: np.exp(
                -((pairs(x, z)[..., [2, 0]] / EACH[:2]) ** 2).sum(-1) / 2
            ),
        ),
    }
)


@functools.cache
def points() -> SimpleNamespace:
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    twice = x.copy()
    twice[:2] = x[2:4]
    return SimpleNamespace(x=x, z=z, coincident=x[:4], far=z + 1e8, twice=twice)


def assert_close(one, other, rtol=1e-12):
    scale = np.abs(np.asarray(other)).max()
    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale)
