"""One kernel of each kind, beside the formula it should be."""

import functools
from types import SimpleNamespace

import numpy as np

from natgrad.gp.kernels import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnInputs,
    Periodic,
    Polynomial,
    RationalQuadratic,
)


EACH = np.asarray([0.6, 1.1, 2.3])
STATIONARY = {
    "matern12": (Matern12, lambda r: np.exp(-r)),
    "matern32": (Matern32, lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r)),
    "matern52": (
        Matern52,
        lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * np.exp(-(5**0.5) * r),
    ),
    "rbf": (RBF, lambda r: np.exp(-(r**2) / 2)),
    "rational": (
        lambda ell, variance: RationalQuadratic(ell, variance, 0.7),
        lambda r: (1 + r**2 / 1.4) ** -0.7,
    ),
}


def pairs(x, z):
    """x − z for all pairs, the array that kernels do without."""
    return x[:, None, :] - z[None, :, :]


def stationary_cases():
    for name, (kind, of_distance) in STATIONARY.items():
        for scales, lengthscale in {"one": 0.8, "each": EACH}.items():

            def formula(x, z, lengthscale=lengthscale, of_distance=of_distance):
                r = np.sqrt(((pairs(x, z) / lengthscale) ** 2).sum(-1))
                return 1.7 * of_distance(r)

            yield f"{name}.{scales}", (kind(lengthscale, 1.7), formula)


def periodic(x, z, lengthscale, period):
    sines = np.sin(np.pi * pairs(x, z) / period) / lengthscale
    return 1.7 * np.exp(-2 * (sines**2).sum(-1))


CASES: dict = dict(stationary_cases()) | {
    "periodic.one": (Periodic(0.8, 1.7, 1.9), lambda x, z: periodic(x, z, 0.8, 1.9)),
    "periodic.each": (
        Periodic(EACH, 1.7, EACH[::-1] + 1),
        lambda x, z: periodic(x, z, EACH, EACH[::-1] + 1),
    ),
    "linear.one": (Linear(0.8), lambda x, z: 0.8 * x @ z.T),
    "linear.each": (Linear(EACH), lambda x, z: x * EACH @ z.T),
    "polynomial.one": (
        Polynomial(3, 0.8, 1.7, 0.4),
        lambda x, z: 1.7 * (x @ z.T / 0.64 + 0.4) ** 3,
    ),
    "polynomial.each": (
        Polynomial(2, EACH, 1.7, 0.4),
        lambda x, z: 1.7 * (x / EACH**2 @ z.T + 0.4) ** 2,
    ),
    "constant": (Constant(0.9), lambda x, z: np.full((len(x), len(z)), 0.9)),
    "sum": (
        RBF(0.8) + Linear(0.5),
        lambda x, z: np.exp(-(pairs(x, z) ** 2).sum(-1) / 1.28) + 0.5 * x @ z.T,
    ),
    "product": (
        2.0 * (RBF(0.8) * Linear(0.5)),
        lambda x, z: np.exp(-(pairs(x, z) ** 2).sum(-1) / 1.28) * (x @ z.T),
    ),
    "on_inputs": (
        OnInputs(RBF(EACH[:2]), (2, 0)),
        lambda x, z: np.exp(-((pairs(x, z)[..., [2, 0]] / EACH[:2]) ** 2).sum(-1) / 2),
    ),
}


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
