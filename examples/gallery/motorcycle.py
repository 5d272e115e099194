"""How certain is a crash test at each moment?

You model noise that changes with the input. The data are 133 measurements of a
crash-test dummy's head acceleration in the milliseconds after impact. The noise is low
at first and high later. A model with constant noise is far too uncertain at the start.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold, cross_val_score

from natgrad import datasets, plot
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    x, y = datasets.load("motorcycle")
    varying = GPRegressor("heteroskedastic", n_inducing=30, max_iter=600, verbose=False)
    varying.fit(x, y)
    equal = GPRegressor("gaussian", verbose=False).fit(x, y)

    at = np.linspace(0, 60, 200)[:, None]
    _, before = varying.predict([[10.0]], return_std=True)
    _, during = varying.predict([[30.0]], return_std=True)
    print(f"standard deviation at 10 ms: {before[0]:.2f} g")
    print(f"standard deviation at 30 ms: {during[0]:.2f} g")
    log_density = lambda model, x, y: model.log_density(x, y).mean()
    folds = KFold(5, shuffle=True, random_state=0)
    for name, model in (("changing", varying), ("constant", equal)):
        scores = cross_val_score(model, x, y, cv=folds, scoring=log_density)
        print(f"{name} noise: {scores.mean():.3f} nats per held-out row")

    _, ax = plt.subplots()
    plot.fit(varying, x, y, ax=ax)
    for bound, label in zip(
        equal.predict(at, quantiles=[0.05, 0.95]).T,
        ("90 %, constant noise", None),
        strict=True,
    ):
        ax.plot(at, bound, color="#D55E00", lw=1, ls="--", label=label)
    ratio = during[0] / before[0]
    ax.set_title(f"The noise at 30 ms is {ratio:.0f} times that at 10 ms")
    ax.set(xlabel="time after impact, ms", ylabel="acceleration of the head, g")
    ax.legend(loc="lower right")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("motorcycle.png"))
    main(parser.parse_args().out)
