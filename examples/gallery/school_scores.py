"""Which share of pupils is above the median?

You fit successes of trials. The data are 303 school districts in California: how many
pupils scored above the national median in mathematics, and how many did not. The number
of pupils comes along as `trials`, so a district of 20 counts less than one of 5,000.
The districts differ by more than chance and these inputs, and 90 % intervals are too
narrow. The second table has cattle that fell ill, of each herd, in four periods.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # of statsmodels and R's lme4
INPUTS = ["LOWINC", "PERMINTE", "AVYRSEXP", "PTRATIO"]


def main(out: Path) -> None:
    table: Any = pd.read_parquet(DATA / "star98.parquet")
    X = table[INPUTS].assign(pupils=table["NABOVE"] + table["NBELOW"])
    above = table["NABOVE"]
    held = np.arange(len(X)) % 5 == 0
    model = GPRegressor("binomial", columns={"trials": "pupils"}, verbose=False)
    model.fit(X[~held], above[~held])
    pupils = X["pupils"][held].to_numpy()
    error = np.abs(model.predict(X[held]) - above[held]) / pupils
    print(f"schools: the share of held-out districts is {error.mean():.3f} off")
    low, high = model.predict(X[held], quantiles=[0.05, 0.95]).T
    inside = np.mean((low <= above[held]) & (above[held] <= high))
    print(f"schools: {inside:.2f} of held-out districts in their 90 % interval")

    cattle = pd.read_parquet(DATA / "cbpp.parquet")
    herds = GPRegressor("binomial", columns={"trials": "size"}, verbose=False)
    herds.fit(cattle[["herd", "period", "size"]], cattle["incidence"])
    for period in (1, 2, 3, 4):
        at = pd.DataFrame({"herd": range(1, 16), "period": period})
        print(f"cattle, period {period}: {herds.predict(at).mean():.3f} fall ill")

    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    at = X[INPUTS].median().to_frame().T.loc[[0] * 80].reset_index(drop=True)
    at["LOWINC"] = np.linspace(0, 100, 80)
    share, _ = model.predict(at, return_std=True)
    ax.scatter(
        table["LOWINC"],
        100 * above / X["pupils"],
        s=np.sqrt(X["pupils"]) / 3,
        color="0.6",
    )
    ax.plot(at["LOWINC"], 100 * share, color="#0072B2", lw=2)
    ax.set(
        xlabel="pupils of low-income families, %",
        ylabel="above the median, %",
        title="A district that is typical in all else",
    )
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("school_scores.png"))
    main(parser.parse_args().out)
