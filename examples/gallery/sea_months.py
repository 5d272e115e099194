"""How warm was the sea in the months that nobody measured?

You fit several outputs with gaps. The data are 61 years of sea temperature off Peru,
with a column for each month. A warm year is warm in most months: that is El Niño. A
third of the values is hidden. One fit of all twelve months knows a hidden value from
the other months of its year, and a fit of each month alone does not.
"""

import argparse
import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.errors import InputWarning
from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # elnino of statsmodels
TOLERANCE = 0.05


def main(out: Path) -> None:
    table = pd.read_parquet(DATA / "elnino.parquet")
    years, months = table[["YEAR"]].to_numpy(), table.drop(columns="YEAR")
    y = months.to_numpy()
    is_hidden = np.random.default_rng(0).uniform(size=y.shape) < 1 / 3
    seen = np.where(is_hidden, np.nan, y)

    together = GPRegressor(verbose=False).fit(years, seen)
    mean, std = together.predict(years, return_std=True)
    alone = np.empty_like(y)
    with warnings.catch_warnings():
        # By its year alone a month is little more than noise, and natgrad says so.
        warnings.simplefilter("ignore", InputWarning)
        for month in range(12):
            own = ~is_hidden[:, month]
            model = GPRegressor(verbose=False).fit(years[own], seen[own, month])
            alone[:, month] = model.predict(years)
    usual = np.broadcast_to(np.nanmean(seen, 0), y.shape)
    for name, guess in (("usual", usual), ("alone", alone), ("together", mean)):
        error = np.sqrt(np.mean((guess - y)[is_hidden] ** 2))
        print(f"{name}: hidden months are {error:.2f} degrees off")
    inside = np.abs(mean - y) < 1.645 * std
    print(f"together: {inside[is_hidden].mean():.2f} of them in their 90 % interval")

    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    last = slice(-12, None)
    time = (years[last] + (np.arange(12) + 0.5) / 12).ravel()
    low, high = (mean - 1.645 * std)[last].ravel(), (mean + 1.645 * std)[last].ravel()
    ax.fill_between(time, low, high, color="#0072B2", alpha=0.25, lw=0, label="90 %")
    ax.plot(time, mean[last].ravel(), color="#0072B2", lw=1, label="together")
    ax.plot(time, alone[last].ravel(), color="#D55E00", lw=0.8, label="month by month")
    hidden = is_hidden[last].ravel()
    ax.plot(time[~hidden], y[last].ravel()[~hidden], ".", color="0.2", label="seen")
    ax.plot(time[hidden], y[last].ravel()[hidden], "x", color="0.2", label="hidden")
    ax.set(ylabel="sea temperature, °C")
    ax.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("sea_months.png"))
    main(parser.parse_args().out)
