"""How many claims does a group of drivers make?

You fit counts with an exposure. The data are 64 groups of drivers: how many hold a
policy, and how many claims they made in a quarter of 1973. A group with 3,582 holders
says more about its rate than one with 3, and the exposure tells the model so. The
claims of ships have an exposure too, their months of service.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # tables of R's MASS
ENGINES = {"<1l": 0.5, "1-1.5l": 1.25, "1.5-2l": 1.75, ">2l": 2.5}
AGES = {"<25": 21, "25-29": 27, "30-35": 32.5, ">35": 50}


def main(out: Path) -> None:
    table: Any = pd.read_parquet(DATA / "insurance.parquet")
    table["engine"] = table["Group"].map(ENGINES)
    table["age"] = table["Age"].map(AGES)
    X = table[["District", "engine", "age", "Holders"]]
    model = GPRegressor("poisson", columns={"exposure": "Holders"}, verbose=False)
    model.fit(X, table["Claims"])
    print(f"drivers: an ELBO of {model.elbo_:.2f} nats per group")
    for name, length in zip(X.columns, model.lengthscales_, strict=False):
        print(f"drivers: a lengthscale of {length:.1f} for {name}")

    ships = pd.read_parquet(DATA / "ships.parquet")
    ships = ships[ships["service"] > 0].dropna()
    inputs = ships.drop(columns="accident")
    for name in ("poisson", "negative-binomial"):
        other = GPRegressor(name, columns={"exposure": "service"}, verbose=False)
        other.fit(inputs, ships["accident"])
        print(f"ships, {name}: an ELBO of {other.elbo_:.2f} nats per row")

    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    ages = np.linspace(18, 60, 80)
    for engine, colour in ((0.5, "#0072B2"), (2.5, "#D55E00")):
        at = {"District": 2, "engine": engine, "age": ages, "Holders": 1000}
        mean, std = model.predict(pd.DataFrame(at), return_std=True)
        ax.fill_between(ages, mean - std, mean + std, color=colour, alpha=0.25, lw=0)
        ax.plot(ages, mean, color=colour, label=f"engine of {engine:g} l")
        own = table[(table["engine"] == engine) & (table["District"] == 2)]
        rate = 1000 * own["Claims"] / own["Holders"]
        ax.scatter(own["age"], rate, s=own["Holders"] / 4, color=colour)
    ax.set(xlabel="age of the driver", ylabel="claims of 1,000 holders")
    ax.set_title("Points are as large as the group; bands are one deviation of claims")
    ax.legend()
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("claims.png"))
    main(parser.parse_args().out)
