"""What makes concrete strong?

The strength of 1,030 mixtures of seven ingredients, at ages from a day to a year. Each
input has a lengthscale of its own; one that is long means that the input hardly
matters. Of the two that matter most the lower picture shows how.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, plot
from natgrad.sklearn import GPRegressor


def main(out: Path) -> None:
    table, strength = datasets.load("concrete")
    order = np.random.default_rng(0).permutation(len(table))
    test, train = order[:100], order[100:]
    model = GPRegressor("gaussian", n_inducing=100, max_iter=600, verbose=False)
    model.fit(table.iloc[train], strength.iloc[train])
    error = model.predict(table.iloc[test]) - strength.iloc[test]
    print(f"typical error: {np.sqrt(np.mean(error**2)):.2f} MPa")
    relevance = dict(
        zip(table.columns, model.x_scale_ / model.lengthscales_, strict=True)
    )
    first, *_, last = sorted(relevance, key=relevance.__getitem__, reverse=True)
    print(f"{first} matters {relevance[first] / relevance[last]:.1f} times {last}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.8))
    plot.relevance(model, ax=left)
    ages = np.geomspace(1, 365, 60)
    usual = table.median()
    for water, colour in ((150, "#0072B2"), (180, "#E69F00"), (210, "#D55E00")):
        at = table.iloc[:60].copy()
        at.loc[:, :] = usual.to_numpy()
        at["age"], at["water"] = ages, float(water)
        mean, std = model.predict(at, return_std=True)
        right.plot(ages, mean, color=colour)
        right.fill_between(ages, mean - std, mean + std, color=colour, alpha=0.15, lw=0)
        right.annotate(f"{water} kg/m³ of water", (ages[-1], mean[-1]), color=colour)
    right.set(xscale="log", xlabel="age, days", ylabel="strength, MPa")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("concrete_strength.png"))
    main(parser.parse_args().out)
