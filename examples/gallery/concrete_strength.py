"""What makes concrete strong?

You rank inputs by their lengthscales and plot the effect of two of them. The data are
1,030 mixtures of seven ingredients, tested after a day to a year. Each input has its
own lengthscale: a long one means that the input hardly matters. On the right, all
inputs except water and age are at their median.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, plot
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    table, strength = datasets.load("concrete", as_frame=True)
    # Concrete sets fast, and then slowly: a day counts for more in the first week.
    table["log_age"] = np.log(table.pop("age"))
    order = np.random.default_rng(0).permutation(len(table))
    test, train = order[:100], order[100:]
    model = GPRegressor("gaussian", verbose=False)
    model.fit(table.iloc[train], strength.iloc[train])
    error = model.predict(table.iloc[test]) - strength.iloc[test]
    print(f"error on held-out mixtures: {np.sqrt(np.mean(error**2)):.2f} MPa")
    order = np.argsort(model.lengthscales_ / model.x_scale_)
    first, second, *_, last = table.columns[order]
    print(f"most relevant: {first}, then {second}; least: {last}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.8))
    plot.relevance(model, ax=left)
    ages = np.geomspace(1, 120, 60)
    for water, colour in ((150, "#0072B2"), (180, "#E69F00"), (210, "#D55E00")):
        at = table.iloc[:60].assign(**table.median())
        at["log_age"], at["water"] = np.log(ages), water
        mean, std = model.predict(at, return_std=True)
        right.plot(ages, mean, color=colour, label=f"{water} kg/m³ of water")
        right.fill_between(ages, mean - std, mean + std, color=colour, alpha=0.15, lw=0)
    right.set(xscale="log", xlabel="age, days", ylabel="strength, MPa", ylim=(0, None))
    right.set_xticks([1, 3, 7, 28, 90], ["1", "3", "7", "28", "90"])
    right.minorticks_off()
    right.legend(loc="upper left")
    title = f"Most relevant: {first}, then {second}. Least: {last}."
    figure.suptitle(title.replace("_", " "), fontsize=11)
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("concrete_strength.png"))
    main(parser.parse_args().out)
