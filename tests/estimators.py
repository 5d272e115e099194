"""Small estimators, fitted once, at which pictures and reports are tested."""

import functools
from typing import Any

import jax
import numpy as np
import pandas as pd

from natgrad.sklearn import GPClassifier, GPOrdinal, GPRegressor


ROWS = 60
NASTY = "<b>load</b> & $cost$ of the whole of the first quarter, before tax_and_fees"
KINDS = ("one", "three", "counts", "two classes", "classes", "grades")


def table(kind: str) -> tuple[pd.DataFrame, pd.Series]:
    """Inputs and targets of one kind of estimator."""
    rng = np.random.default_rng(0)
    width = {"one": 1, "counts": 1, "grades": 1, "three": 3}.get(kind, 2)
    x = rng.uniform(-2, 2, (ROWS, width))
    curve = np.sin(2 * x[:, 0])
    names = [NASTY, "second", "third"][:width]
    noisy = curve + 0.3 * rng.standard_normal(ROWS)
    y = {
        "one": 100 + 20 * noisy,
        "three": noisy - x[:, -1],
        "counts": rng.poisson(np.exp(1 + curve)),
        "two classes": np.where(noisy > x[:, -1], "yes", "no"),
        "classes": np.asarray(["<i>a</i>", "b", "c"])[np.digitize(noisy, [-0.5, 0.5])],
        "grades": 1 + np.digitize(noisy, [-0.5, 0.5]),
    }[kind]
    return pd.DataFrame(x, columns=pd.Index(names)), pd.Series(y, name="yield & <loss>")


@functools.cache
def fitted(kind: str) -> Any:
    make = {
        "one": lambda **more: GPRegressor("gaussian", **more),
        "three": lambda **more: GPRegressor("student-t", **more),
        "counts": lambda **more: GPRegressor("poisson", **more),
        "grades": GPOrdinal,
    }.get(kind, GPClassifier)
    # Adam inside Optax promotes, and a user's JAX lets it.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        estimator = make(n_inducing=8, max_iter=20, verbose=False)
        return estimator.fit(*table(kind))
