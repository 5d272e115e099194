"""Which way is downhill, for a distribution?

The weight of glucose in the diagnosis of 25 women is a Gaussian: two numbers, so that
the bound on the evidence is a map. Where an ordinary gradient leads depends on which
two numbers are written down, and each choice wants a rate of its own: here the best of
25. The natural gradient takes the same path in both, at a rate that was not searched.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from matplotlib.animation import FuncAnimation, PillowWriter

import natgrad
from natgrad import datasets
from natgrad.families import gaussian
from natgrad.linalg import Full, Sqrt


STEPS, MEAN, DEVIATION = 25, -1.0, 0.25


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    x, y = datasets.load("pima")
    glucose = (x[:25, 1] - x[:, 1].mean()) / x[:, 1].std()
    rows = jnp.asarray(glucose * (2 * y[:25] - 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    prior = gaussian.Moments(jnp.zeros(1), Sqrt(jnp.eye(1)))

    def at(mean: Any, deviation: Any) -> gaussian.Moments:
        return gaussian.Moments(mean[None], Sqrt(deviation[None, None]))

    def loss(q: gaussian.AbstractGaussian) -> Any:
        """Minus the bound on the evidence, in nats."""
        drawn = q.location()[0] + jnp.abs(q.factor()[0, 0]) * nodes
        fit = jax.nn.log_sigmoid(rows[:, None] * drawn[None, :]).sum(0)
        return q.kl(prior) - fit @ (weights / weights.sum())

    def path(tx: optax.GradientTransformation, q: Any) -> Any:
        """The mean, the deviation and the loss at each step."""

        def step(carry: Any, _: None) -> Any:
            q, state = carry
            here = jnp.stack([q.location()[0], jnp.abs(q.factor()[0, 0]), loss(q)])
            updates, state = tx.update(jax.grad(loss)(q), state, q)
            return (optax.apply_updates(q, updates), state), here

        return jax.lax.scan(step, (q, tx.init(q)), length=STEPS + 1)[1]

    start = at(jnp.asarray(MEAN), jnp.asarray(DEVIATION))
    chart = gaussian.Canonical(jnp.zeros(1), Full(jnp.eye(1)))
    theta = chart.at_natural(start.natural())
    walks = {"natural gradient": np.asarray(path(natgrad.mirror_descent(0.5), start))}
    lowest = walks["natural gradient"][-1, 2]
    rates = jnp.geomspace(1e-3, 1e3, 25)
    at_rates = jax.vmap(lambda rate, q: path(optax.sgd(rate), q), (0, None))
    for name, q in (("mean, deviation", start), ("natural parameters", theta)):
        tried = np.asarray(at_rates(rates, q))
        best = np.nan_to_num(tried[:, :, 2], nan=np.inf).mean(1).argmin()
        walks[f"ordinary, in {name}"] = tried[best]
    for name, walk in walks.items():
        print(
            f"{name}: {walk[10, 2] - lowest:.3f} nats above the lowest after 10 steps"
        )

    sides = np.linspace(-1.3, 1.9, 120), np.linspace(0.1, 0.9, 90)
    heights = jax.vmap(jax.vmap(lambda m, s: loss(at(m, s))))(*np.meshgrid(*sides))
    figure, ax = plt.subplots(figsize=(5.6, 3.8))
    gaps = np.log(np.asarray(heights) - lowest + 0.02)
    ax.contour(*sides, gaps, 14, colors="0.8", linewidths=0.7, linestyles="-")
    lines = []
    for name, colour in zip(walks, ("#0072B2", "#D55E00", "#E69F00"), strict=True):
        lines += ax.plot([], [], "o-", ms=3.5, lw=1.4, color=colour, label=name)
    ax.set(xlabel="mean of the weight", ylabel="its deviation")
    ax.legend(loc="upper left", frameon=True, framealpha=0.9)

    def draw(frame: int) -> list[Any]:
        ax.set_title(f"Step {frame}: ordinary paths depend on the coordinates")
        for line, walk in zip(lines, walks.values(), strict=True):
            line.set_data(*walk[: frame + 1, :2].T)
        return lines

    frames = [*range(STEPS + 1), *[STEPS] * 8]
    FuncAnimation(figure, draw, frames).save(out, PillowWriter(4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("contours.gif"))
    main(parser.parse_args().out)
