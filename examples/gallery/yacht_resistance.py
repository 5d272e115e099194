"""How hard is it to pull a hull through water?

You fit a positive target whose noise grows with its size. The data are the resistance
of 22 hulls at 14 speeds, which rises a thousandfold with speed. Gamma noise is
relative to the mean. Gaussian noise is the same at all speeds, so most of its band lies
below zero at low speeds.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    table, resistance = datasets.load("yacht", as_frame=True)
    x, y = table.to_numpy(), resistance.to_numpy()
    hulls = np.unique(x[:, :5], axis=0)
    # Hold out whole hulls: other speeds of the same hull would reveal the answer.
    is_test = (x[:, None, :5] == hulls[None, ::5]).all(-1).any(-1)
    at = np.insert(
        np.repeat(x[is_test][:1, :5], 80, 0), 5, np.linspace(0.125, 0.45, 80), 1
    )
    own = (x[:, :5] == at[0, :5]).all(1)

    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.8), sharey=True)
    for ax, name, colour in zip(
        axes, ("gamma", "gaussian"), ("#0072B2", "#D55E00"), strict=True
    ):
        model = GPRegressor(name, n_inducing=40, max_iter=1000, verbose=False)
        model.fit(x[~is_test], y[~is_test])
        score = model.log_density(x[is_test], y[is_test]).mean()
        print(f"{name}: {score:.3f} nats per row on held-out hulls")
        low, middle, high = model.predict(at, quantiles=[0.05, 0.5, 0.95]).T
        ax.fill_between(
            at[:, 5], np.maximum(low, 1e-3), high, color=colour, alpha=0.25, lw=0
        )
        ax.plot(at[:, 5], np.maximum(middle, 1e-3), color=colour)
        ax.plot(x[own, 5], y[own], "o", color="0.15", ms=4)
        ax.set(yscale="log", ylim=(0.02, 150), xlabel="Froude number (speed)")
        ax.set_title(f"{name}: {score:.2f} nats per held-out row")
    axes[0].set_ylabel("residuary resistance per weight, ×1000")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("yacht_resistance.png"))
    main(parser.parse_args().out)
