"""Which buildings should you simulate next?

Those whose simulations would leave the least uncertainty about all buildings. You have
100 simulations of the heating load of a building, and you can afford 50 more.
`predictor.given` tells what a model would know after one more, before you run it. Here
it tries all 550 buildings under `jax.vmap`, takes the best, and then adds the simulated
load the same way. The comparison is a random choice. Both learn the lengthscales from
the first 100 simulations. The gain depends on the table: on concrete it was small.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from natgrad import datasets, gp


FIRST, LAST, POOL, SEEDS = 100, 150, 550, 5
TOLERANCE = 0.05  # one different choice changes all later ones


@jax.jit
def variance_left(predictor: gp.Predictor, rows: jax.Array) -> jax.Array:
    """What is left of the variance at all rows if you simulate one of them."""

    def after(row: jax.Array) -> jax.Array:
        mean = predictor.latent_at(row[None])[0]  # any value: only variances count
        return predictor.given(row[None], mean).latent_at(rows[::3])[1].sum()

    return jax.lax.map(after, rows, batch_size=100)  # a vmap of 100 rows at a time


@jax.jit
def simulated(predictor: gp.Predictor, row: jax.Array, y: jax.Array) -> gp.Predictor:
    return predictor.given(row[None], y[None])


def errors(predictor: Any, x: Any, y: Any, choose: Callable) -> list[float]:
    """The held-out error after each choice; the row with the least score is next."""

    def error() -> float:
        mean, _ = predictor.latent(x[POOL:])
        return float(np.sqrt(np.mean((mean - y[POOL:]) ** 2)))

    is_known = np.arange(POOL) < FIRST
    found = [error()]
    for _ in range(FIRST, LAST):
        best = int(np.where(is_known, np.inf, choose(predictor)).argmin())
        is_known[best] = True
        predictor = simulated(predictor, jnp.asarray(x[best]), jnp.asarray(y[best]))
        found.append(error())
    return found


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    x, load = datasets.load("energy")
    x = (x - x.mean(0)) / x.std(0)
    centre, scale = load.mean(), load.std()
    curves = {"least variance left": [], "random": []}
    for seed in range(SEEDS):
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(x))
        rows, y = x[order], (load[order] - centre) / scale
        model = gp.initialize(rows[:POOL], gp.likelihoods.Gaussian(0.1), 80)
        model, _ = gp.fit(model, (rows[:FIRST], y[:FIRST]), progress=False)
        start, pool = gp.predictor(model), jnp.asarray(rows[:POOL])
        active = lambda predictor, pool=pool: np.asarray(variance_left(predictor, pool))
        chance = lambda _, generator=generator: generator.random(POOL)
        for name, choose in zip(curves, (active, chance), strict=True):
            curves[name].append(errors(start, rows, y, choose))

    _, ax = plt.subplots()
    numbers = np.arange(FIRST, LAST + 1)
    for (name, runs), colour in zip(
        curves.items(), ("#0072B2", "#D55E00"), strict=True
    ):
        runs = scale * np.array(runs)
        mean = runs.mean(0)
        ax.plot(numbers, runs.T, color=colour, lw=0.7, alpha=0.5)
        ax.plot(numbers, mean, color=colour, lw=3, label=name)
        for number in (FIRST, LAST):
            print(f"{name}, {number} simulations: {mean[number - FIRST]:.2f} kWh/m²")
    ax.set(xlabel="simulations so far", ylabel="held-out error, kWh/m²")
    ax.set_title(f"Chosen simulations teach more ({SEEDS} starts and their means)")
    ax.legend()
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("next_buildings.png"))
    main(parser.parse_args().out)
