"""Can four parties learn together if none of them may share its rows?

Yes: each party sends what its rows add to the model, and nobody sends rows. The first
data are incomes, where each party has the people of some ages. The second are delays of
flights, where each has a quarter of the year. 1,000 public rows set the lengthscales
and the inducing inputs. All scores are for held-out rows of all ages and all quarters.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, gp


ROWS, ROUNDS = 13_000, 4
NAMES = ("A", "B", "C", "D")


def incomes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, whether an income is above 50,000, and the age."""
    table = datasets.frame("adult")
    gains = np.log1p(table[["capital_gain", "capital_loss"]].to_numpy(float))
    married = table["marital_status"].str.startswith("Married").to_numpy(float)
    plain = table[["age", "education_num", "hours_per_week"]].to_numpy(float)
    x = np.column_stack([plain, gains, married])
    return x, (table["target"] == ">50K").to_numpy(float), plain[:, 0]


def delays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, the delay of a flight in hours, and the month."""
    x, y = datasets.load("flights_nyc2013")
    return x[:, [0, 2, 4, 5, 6]], y / 60, x[:, 0]


def fitted(
    x: np.ndarray, y: np.ndarray, by: np.ndarray, likelihood: Any
) -> tuple[list[float], list[float], float]:
    """Held-out scores: of each party alone, of all after each round, of all rows."""
    some = np.random.default_rng(0).permutation(len(y))[:ROWS]
    x, y, by = (x[some] - x.mean(0)) / x.std(0), y[some], by[some]
    public, test = slice(0, 1000), slice(1000, 5000)
    model = gp.initialize(x[public], likelihood, num_inducing=60)
    model, _ = gp.fit(model, (x[public], y[public]), progress=False)
    prior, _ = gp.combine(model, {})  # only what the parties add is to count

    groups = np.digitize(by[5000:], np.quantile(by[5000:], [0.25, 0.5, 0.75]))
    places = [5000 + np.flatnonzero(groups == i) for i in range(4)]
    rows = {n: (x[at], y[at]) for n, at in zip(NAMES, places, strict=True)}

    def score(model: gp.SparseGP) -> float:
        return float(gp.predictor(model).log_density(x[test], y[test]).mean())

    found = {n: gp.fit_site(prior, rows[n]) for n in NAMES}
    alone = [score(gp.combine(prior, {n: found[n]}).model) for n in NAMES]
    model, sites = gp.combine(prior, found)
    together = [score(model)]
    for _ in range(1, ROUNDS):
        found = {n: gp.fit_site(model, rows[n], sites[n]) for n in NAMES}
        model, sites = gp.combine(model, found, sites)
        together.append(score(model))
    whole = {"whole": gp.fit_site(prior, (x[5000:], y[5000:]))}
    return alone, together, score(gp.combine(prior, whole).model)


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    _, axes = plt.subplots(1, 2, figsize=(8.4, 3.8))
    kinds = [gp.likelihoods.Bernoulli(), gp.likelihoods.StudentT()]
    titles = ["Incomes: a party has some ages", "Delays: a party has some months"]
    tables = [incomes(), delays()]
    for ax, title, table, kind in zip(axes, titles, tables, kinds, strict=True):
        alone, together, whole = fitted(*table, kind)
        print(title)
        for name, value in zip(NAMES, alone, strict=True):
            print(f"  party {name} alone: {value:.4f} nats per row")
        print(f"  together after 1 round: {together[0]:.4f} nats per row")
        print(f"  together after {ROUNDS} rounds: {together[-1]:.4f} nats per row")
        print(f"  all rows at once: {whole:.4f} nats per row")
        ax.axhline(whole, color="#D55E00", label="all rows at once")
        rounds = range(1, ROUNDS + 1)
        ax.plot(rounds, together, "o-", color="#0072B2", label="four parties together")
        ax.plot(4 * [0], alone, "o", color="#009E73", label="each party alone")
        for name, value in zip(NAMES, alone, strict=True):
            ax.annotate(name, (0, value), (6, -4), textcoords="offset points")
        ax.set(xlabel="round", xlim=(-0.4, ROUNDS + 0.4), xticks=range(ROUNDS + 1))
        ax.set_title(title)
    axes[0].set_ylabel("held-out log density, nats per row")
    axes[0].legend(loc="center right")
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("four_parties.png"))
    main(parser.parse_args().out)
