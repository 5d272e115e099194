"""What do you know of a value that was not measured?

You fit values that are known by bounds. The first data are concentrations of zinc in
ground water, in two kinds of soil. Of a fourth of them the laboratory only knows that
they are below a limit (left-censored). The second are the years until diabetes harms
the kidneys of 731 patients, which a check-up finds between two dates
(interval-censored).
"""

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # tables of the package lifelines
SOILS = ("alluvial fan", "basin trough")


def main(out: Path) -> None:
    zinc = pd.read_parquet(DATA / "left_censored_zinc.parquet")
    log = np.log(zinc["T"].to_numpy())
    is_seen = zinc["E"].to_numpy() == 1
    soil = (zinc["group"] == "basin_trough").to_numpy(float)
    X = np.column_stack([soil, np.where(is_seen, log, np.nan), log])
    bounds = {"lower": 1, "upper": 2}
    model = GPRegressor("gaussian", columns=bounds, verbose=False).fit(X, log)
    as_seen = GPRegressor("gaussian", verbose=False).fit(soil[:, None], log)
    for kind, name in enumerate(SOILS):
        right, wrong = (np.exp(each.predict([[kind]])[0]) for each in (model, as_seen))
        print(f"zinc, {name}: median {right:.1f}, as values {wrong:.1f}")

    harm = pd.read_parquet(DATA / "interval_diabetes.parquet")
    gender = (harm["gender"] == "male").to_numpy(float)
    left, right = (harm[side].to_numpy(float) for side in ("left", "right"))
    X = np.column_stack([gender, left, right])
    middle = np.where(np.isfinite(right), (left + right) / 2, left)
    times = GPRegressor("weibull", columns=bounds, verbose=False)
    times.fit(X, np.maximum(middle, 0.5))

    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.8))
    grid = np.linspace(-0.5, 3.5, 200)
    for kind, name in enumerate(SOILS):
        colour = ("#0072B2", "#D55E00")[kind]
        below = model.cdf(np.full((200, 1), float(kind)), grid)
        axes[0].plot(np.exp(grid), below, color=colour, label=name)
        own = soil == kind
        axes[0].plot(
            np.sort(np.exp(log[own])), np.linspace(0, 1, own.sum()), ":", color=colour
        )
    axes[0].set(xscale="log", xlabel="zinc, µg/l", ylabel="share below")
    axes[0].legend()
    years = np.linspace(0.5, 40, 100)
    for kind, colour, name in ((0.0, "#0072B2", "women"), (1.0, "#D55E00", "men")):
        harmed = times.cdf(np.full((100, 1), kind), years)
        axes[1].plot(years, harmed, color=colour, label=name)
        print(f"kidneys, {name}: {times.cdf([[kind]], [20.0])[0]:.3f} within 20 years")
    axes[1].set(xlabel="years", ylabel="share harmed")
    axes[1].legend()
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("below_the_limit.png"))
    main(parser.parse_args().out)
