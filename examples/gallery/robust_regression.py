"""Is a fit of house prices led astray by a few odd sales?

Prices of 506 homes near Boston over their number of rooms. Some small homes sold for
the highest price there is, where the table cuts prices off, and some large ones for
little. Noise with heavy tails lets such rows be what they are; Gaussian noise has to
bend the curve, or widen the band for all.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    table, price = datasets.load("boston", as_frame=True)
    x, y = table[["RM"]].to_numpy(), price.to_numpy()
    models = {}
    for name in ("student-t", "gaussian"):
        model = GPRegressor(name, n_inducing=30, max_iter=600, verbose=False)
        models[name] = model.fit(x, y)

    # Half of all sales should lie in a band of 50 %.
    at = np.linspace(x.min(), x.max(), 200)[:, None]
    bands, widths = {}, {}
    for name, model in models.items():
        bands[name] = model.predict(at, quantiles=[0.25, 0.5, 0.75]).T
        low, high = model.predict(x, quantiles=[0.25, 0.75]).T
        widths[name] = np.median(high - low)
        inside = np.mean((low <= y) & (y <= high))
        density = model.log_density(x, y).mean()
        print(f"{name}: {inside:.3f} of sales in the 50 % band")
        print(f"{name}: {density:.3f} nats per row")

    _, ax = plt.subplots()
    ax.scatter(x, y, s=10, color="0.2", alpha=0.5, lw=0)
    for (name, (low, middle, high)), colour in zip(
        bands.items(), ("#0072B2", "#D55E00"), strict=True
    ):
        ax.fill_between(at[:, 0], low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(at, middle, color=colour, label=f"{name}: median and 50 % band")
    ratio = widths["student-t"] / widths["gaussian"]
    ax.set_title(
        f"With heavy tails the band of half the sales is {ratio:.2f} times as wide"
    )
    ax.set(xlabel="rooms per dwelling", ylabel="median price, 1000 $")
    ax.legend(loc="lower right")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("robust_regression.png"))
    main(parser.parse_args().out)
