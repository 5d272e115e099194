"""How often does a person see a doctor?

You fit counts with many zeros. The data are 20,186 years of people in an insurance
experiment, and in 31 % of them nobody saw a doctor. A Poisson distribution cannot have
so many zeros and so many long illnesses at once. Four likelihoods are compared on
held-out people.
"""

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from natgrad.sklearn import GPRegressor


DATA = Path(os.environ["NATGRAD_DATA"])  # DoctorContacts of R's Ecdat
INPUTS = ["lc", "lpi", "fmde", "physlim", "ndisease", "linc", "lfam", "age"]
NAMES = {
    "poisson": "#D55E00",
    "zero-inflated-poisson": "#E69F00",
    "negative-binomial": "#0072B2",
    "zero-inflated-negative-binomial": "#009E73",
}
TOLERANCE = 0.03


def main(out: Path) -> None:
    table = pd.read_parquet(DATA / "doctor_visits.parquet")
    some = np.random.default_rng(0).permutation(len(table))[:5000]
    X, visits = table[INPUTS].to_numpy()[some], table["mdu"].to_numpy()[some]
    train, test = slice(0, 4000), slice(4000, 5000)
    counts = np.arange(13)
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    share = [np.mean(visits[test] == count) for count in counts]
    ax.bar(counts, share, color="0.85", label="held-out people")
    for name, colour in NAMES.items():
        model = GPRegressor(name, n_inducing=40, max_iter=100, verbose=False)
        model.fit(X[train], visits[train])
        score = model.log_density(X[test], visits[test]).mean()
        each = [
            np.exp(model.log_density(X[test], np.full(1000, count))).mean()
            for count in counts
        ]
        print(f"{name}: {score:.3f} nats per person; no visit {each[0]:.3f}")
        ax.plot(counts, each, "o-", ms=4, color=colour, label=f"{name}, {score:.2f}")
    print(f"no visit among held-out people: {share[0]:.3f}")
    ax.set(xlabel="visits in a year", ylabel="share of people")
    ax.legend(title="likelihood, nats per held-out person")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("doctor_visits.png"))
    main(parser.parse_args().out)
