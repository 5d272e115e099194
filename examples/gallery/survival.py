"""How long until a cancer returns?

You fit lifetimes of which some had not ended. The data are 686 women after breast
cancer: 387 left the study before it came back, and of them only a lower bound of the
time is known. The column `event` says so. Dropping these rows, or taking their times as
ends, makes lives too short. A second table has the days until AIDS or death of 2,139
patients.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # of R's TH.data, speff2trial
YEAR = 365.25


def main(out: Path) -> None:
    table: Any = pd.read_parquet(DATA / "gbsg2.parquet")
    X = table[["age", "tsize", "pnodes", "progrec", "cens"]].astype(float)
    X["hormone"] = (table["horTh"] == "yes").astype(float)
    years = table["time"] / YEAR
    held = np.arange(len(X)) % 5 == 0
    options = {"max_iter": 100, "verbose": False}
    model = GPRegressor("weibull", columns={"event": "cens"}, **options)
    model.fit(X[~held], years[~held])
    seen = ~held & (X["cens"] == 1)
    dropped = GPRegressor("weibull", **options)
    dropped.fit(X[seen].drop(columns="cens"), years[seen])
    score = model.log_density(X[held], years[held]).mean()
    print(f"breast cancer, with event: {score:.3f} nats per held-out woman")

    trial: Any = pd.read_parquet(DATA / "actg175.parquet").drop(
        columns=["Unnamed: 0", "pidnum"]
    )
    inputs = trial[["age", "wtkg", "karnof", "cd40", "cd80", "treat", "cens"]]
    days = GPRegressor("weibull", columns={"event": "cens"}, n_inducing=30, **options)
    days.fit(inputs.astype(float), trial["days"] / YEAR)
    for treat in (0, 1):
        at = inputs.drop(columns="cens").assign(treat=treat).astype(float)
        ends = days.cdf(at, np.full(len(at), 2.0)).mean()
        print(f"HIV, treatment {treat}: {ends:.3f} end within two years")

    # Kaplan and Meier's estimate, of the held-out women.
    times, events = years[held].to_numpy(), X["cens"][held].to_numpy()
    order = np.argsort(times)
    times, events = times[order], events[order]
    alive = np.cumprod(1 - events / np.arange(len(times), 0, -1))
    at = np.linspace(0.05, 7, 60)
    inputs = X[held].drop(columns="cens")
    surviving = lambda each, t: 1 - each.cdf(inputs, np.full(len(inputs), t)).mean()
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    ax.step(times, alive, where="post", color="0.2", label="Kaplan–Meier, held out")
    curve = [surviving(model, t) for t in at]
    ax.plot(at, curve, color="#0072B2", label="natgrad, with event")
    short = [surviving(dropped, t) for t in at]
    ax.plot(at, short, color="#D55E00", label="natgrad, unfinished rows dropped")
    there = alive[np.searchsorted(times, 5.0) - 1]
    print(f"five years: {there:.2f} Kaplan–Meier, {surviving(model, 5.0):.2f} natgrad")
    print(f"five years, unfinished rows dropped: {surviving(dropped, 5.0):.2f}")
    ax.set(xlabel="years", ylabel="without recurrence", ylim=(0, 1), xlim=(0, 7))
    ax.legend()
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("survival.png"))
    main(parser.parse_args().out)
