"""Sets, likelihoods and starts for the bars of the step size: see bars.py."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import small_gp

from natgrad import gp
from natgrad.gp import likelihoods


INDUCING, ROWS = 100, 256
CLASSES = 51
"""The targets of naval have so many values, evenly spaced."""

EDGES = np.linspace(-2, 2, CLASSES - 1)


class Case(NamedTuple):
    """A set and a likelihood: at `scale` with fixed hyperparameters, else at its start.

    `ramps` are the lengths of the paper's ramp, the one it used first; the first is the
    one that runs with hyperparameters too. Without a `start` they stay fixed.
    """

    name: str
    likelihood: str
    scale: float = 1.0
    start: float | None = 1.0
    ramps: tuple[int, ...] = (5,)
    kind: str = "paper"

    @property
    def title(self) -> str:
        is_scaled = self.likelihood in ("Gaussian", "Student-t")
        return f"{self.likelihood} {self.scale:g}" if is_scaled else self.likelihood


CASES = (
    Case("energy", "Gaussian", 0.01),
    Case("boston", "Student-t", 1.0),
    Case("boston", "Student-t", 0.2, start=None),
    Case("pima", "Bernoulli"),
    Case("naval", "Gaussian", 0.01, ramps=(40, 5)),
    Case("naval", "beta", ramps=(40, 5)),
    Case("naval", "ordinal", ramps=(40, 5)),
    Case("kin8nm", "Student-t", 0.2, ramps=(40, 5)),
    Case("power", "Student-t", 0.2, ramps=(40, 5)),
    Case("outliers", "Student-t", 0.05, start=0.05, kind="stress"),
    Case("three classes", "robust-max", kind="stress"),
    Case("concrete", "Student-t", 0.2, kind="stress"),
    Case("banana", "Bernoulli", kind="stress"),
    Case("year_head", "Student-t", 0.2),
    Case("protein", "Student-t", 0.2, ramps=(40, 5)),
    Case("targets of a million", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("copied rows", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("nearly copied rows", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("fewer rows than M", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("one class", "Bernoulli", kind="hostile"),
    Case("one class of three", "robust-max", kind="hostile"),
    Case("constant inputs", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("inputs not scaled", "Student-t", 0.2, start=0.2, kind="hostile"),
    Case("noise of 1e-8", "Gaussian", 1e-8, start=1e-8, kind="hostile"),
    Case("large counts", "Poisson", kind="hostile"),
    Case("mnist", "robust-max", ramps=(40,), kind="large"),
)
SPLITS = 5


# Data


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """The rows to learn from of the standard split, inputs in [0, 1]."""
    with np.load(Path(os.environ["NATGRAD_DATA"]) / "mnist.npz") as file:
        x, y = file["x_train"], file["y_train"]
    return x.reshape(len(x), -1) / 255, y.astype(float)


def _smooth(rows: int = 1000) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (rows, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(rows)
    return x, y, rng


def _millions():
    x, y, rng = _smooth()
    y[rng.choice(len(y), 20, replace=False)] += rng.choice([-1e6, 1e6], 20)
    return x, y


def _copied():
    x, y, rng = _smooth()
    places = rng.integers(0, 30, len(y))
    return x[places], y[places] + 0.1 * rng.standard_normal(len(y))


def _nearly_copied():
    x, y = _copied()
    return x + 1e-9 * np.random.default_rng(1).standard_normal(x.shape), y


def _one_class():
    x, y, _ = _smooth()
    return x, np.ones_like(y)


def _constant():
    x, y, _ = _smooth()
    return np.ones_like(x), y


def _not_scaled():
    x, y, _ = _smooth()
    return x * np.asarray([1e6, 1.0, 1e-6])[None, :] + 1e3, y


def _counts():
    x, y, rng = _smooth()
    return x, rng.poisson(np.exp(4 + 2.5 * y)).astype(float)


MADE: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "outliers": small_gp.outliers,
    "three classes": small_gp.three_classes,
    "mnist": mnist,
    "targets of a million": _millions,
    "copied rows": _copied,
    "nearly copied rows": _nearly_copied,
    "fewer rows than M": lambda: _smooth(50)[:2],
    "one class": _one_class,
    "one class of three": _one_class,
    "constant inputs": _constant,
    "inputs not scaled": _not_scaled,
    "noise of 1e-8": lambda: _smooth()[:2],
    "large counts": _counts,
}
LEFT_AS_THEY_ARE = ("mnist", "inputs not scaled")
"""Sets whose inputs are not scaled: digits are in [0, 1] already."""


def load(case: Case, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random nine tenths of the rows, scaled; of mnist all that are to learn from."""
    x, y = MADE.get(case.name, lambda: small_gp.table(case.name))()
    if case.name != "mnist":
        rows = np.random.default_rng(1000 + seed).permutation(len(y))[len(y) // 10 :]
        low, high = y.min(), y.max()
        x, y = x[rows], y[rows]
        if case.likelihood == "beta":
            # The ends have no density.
            y = np.clip((y - low) / (high - low), 1e-6, 1 - 1e-6)
        if case.likelihood == "ordinal":
            y = np.round((CLASSES - 1) * (y - low) / (high - low))
    if case.name not in LEFT_AS_THEY_ARE:
        deviation = x.std(0)
        is_constant = deviation < 1e-12 * np.maximum(1, np.abs(x.mean(0)))
        x = (x - x.mean(0)) / np.where(is_constant, 1, deviation)
    is_regression = case.likelihood in ("Gaussian", "Student-t")
    if is_regression and case.name != "targets of a million":
        y = (y - y.mean()) / y.std()
    return x, y


def model_of(case: Case, scale: float, x: np.ndarray, seed: int) -> gp.SparseGP:
    classes = 10 if case.name == "mnist" else 3
    make: dict[str, Callable[[], Any]] = {
        "Gaussian": lambda: likelihoods.Gaussian(scale),
        "Student-t": lambda: likelihoods.StudentT(scale, 3.0),
        "Bernoulli": likelihoods.Bernoulli,
        "beta": lambda: likelihoods.Beta(scale),
        "ordinal": lambda: likelihoods.Ordinal(EDGES, scale),
        "robust-max": lambda: likelihoods.RobustMax(classes),
        "Poisson": likelihoods.Poisson,
    }
    model = gp.initialize(x, make[case.likelihood](), INDUCING, seed)
    # In float64 whatever the table was in.
    assert model.inducing.dtype == jnp.float64
    return model
