"""What does each picture of `natgrad.plot` show?

Small data sets made with a fixed seed, an estimator fitted to each with nothing set
but its length, and every picture by its one call, on rows that were held out.

    python examples/pictures.py --out docs/figures
    python examples/pictures.py --out docs/figures boundary residuals
"""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image

from natgrad import datasets, plot
from natgrad.sklearn import GPClassifier, GPRegressor


OPTIONS: dict[str, Any] = {"max_iter": 1000, "verbose": False}
Table = tuple[Any, Any, Any]  # an estimator, inputs, targets


# Data and estimators; of each, some rows are held out for the pictures


@functools.cache
def motorcycle() -> Table:
    X, y = datasets.load("motorcycle", as_frame=True)
    return GPRegressor("heteroskedastic", **OPTIONS).fit(X, y), X, y


@functools.cache
def house() -> Table:
    """Five inputs, of which the last two have no effect."""
    rng = np.random.default_rng(0)
    names = ["floor area (m²)", "distance to the centre (km)", "age (years)"]
    names += ["floor", "day of the week"]
    low, high = [30, 0, 0, 0, 1], [200, 20, 100, 10, 7]
    X = pd.DataFrame(rng.uniform(low, high, (1200, 5)), columns=pd.Index(names))
    far = np.exp(-X[names[1]] / 6)
    price = 40 + 3 * X[names[0]] * (0.4 + far) + 60 * np.cos(X["age (years)"] / 16)
    noise = 40 * rng.standard_normal(len(X))
    y = pd.Series(price + noise, name="price (1000 €)")
    return GPRegressor(**OPTIONS).fit(X[:800], y[:800]), X[800:], y[800:]


@functools.cache
def moons(classes: int = 2) -> Table:
    """Arcs that reach into each other."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, classes, 900)
    angle = rng.uniform(0.1, np.pi - 0.1, len(label))
    side = np.where(label % 2, -1, 1)
    x = np.stack([np.cos(angle) + label, side * (np.sin(angle) - 0.3)], 1)
    x += 0.3 * rng.standard_normal(x.shape)
    X = pd.DataFrame(x, columns=pd.Index(["first input", "second input"]))
    y = pd.Series(np.asarray(["barley", "oats", "rye"])[label], name="crop")
    return GPClassifier(**OPTIONS).fit(X[:500], y[:500]), X[500:], y[500:]


# A picture is one call


FIGURES: dict[str, Callable[[Any], Any]] = {
    "history": lambda ax: plot.history(house()[0], ax),
    "fit": lambda ax: plot.fit(*motorcycle(), ax),
    "boundary": lambda ax: plot.boundary(*moons(), ax),
    "boundary_three": lambda ax: plot.boundary(*moons(3), ax),
    "calibration": lambda ax: plot.calibration(*house(), ax),
    "reliability": lambda ax: plot.calibration(*moons(), ax),
    "predicted": lambda ax: plot.predicted(*house(), ax),
    "confusion": lambda ax: plot.predicted(*moons(3), ax),
    "lengthscales": lambda ax: plot.lengthscales(house()[0], ax),
    "residuals": lambda ax: plot.residuals(*house(), ax),
}


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False}):
            figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
            FIGURES[name](ax)
            path = out / f"plot_{name}.png"
            figure.savefig(path, dpi=240)
            plt.close(figure)
        # A palette is all that is there, and a third of the bytes.
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
        print(path, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(FIGURES)}")
    arguments = parser.parse_args()
    main(arguments.out, arguments.names)
