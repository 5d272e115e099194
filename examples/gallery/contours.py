"""Which way is downhill, for a distribution?

You watch four paths of gradient descent from the same start. The loss is minus the ELBO
of a Gaussian q over one weight, so two numbers describe q. Both panels show the same
losses and paths: on the left as mean and standard deviation, on the right as natural
parameters. Each method runs in both coordinates, at a rate that was not tuned. The two
natural gradient paths coincide. The two ordinary ones do not.
"""

import argparse
import itertools
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


STEPS, START = 60, (-1.0, 0.25)
METHODS = {"natural gradient": natgrad.ngd(0.1), "ordinary gradient": optax.sgd(0.01)}
CONTOURS = {"colors": "0.8", "linewidths": 0.7, "linestyles": "-"}
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00")


def theta(mean: Any, deviation: Any) -> tuple[Any, Any]:
    return mean / deviation**2, -0.5 / deviation**2


def at(mean: Any, deviation: Any) -> gaussian.Moments:
    return gaussian.Moments(mean[None], Sqrt(deviation[None, None]))


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    x, y = datasets.load("pima")
    glucose = (x[:25, 1] - x[:, 1].mean()) / x[:, 1].std()
    rows = jnp.asarray(glucose * (2 * y[:25] - 1))
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    prior = gaussian.Moments(jnp.zeros(1), Sqrt(jnp.eye(1)))

    def loss(q: gaussian.AbstractGaussian) -> Any:
        """Minus the ELBO of a logistic regression with 25 rows, in nats."""
        drawn = q.location()[0] + jnp.abs(q.factor()[0, 0]) * nodes
        fit = jax.nn.log_sigmoid(rows[:, None] * drawn[None, :]).sum(0)
        return q.kl(prior) - fit @ (weights / weights.sum())

    def path(tx: optax.GradientTransformation, q: Any) -> np.ndarray:
        def step(carry: Any, _: None) -> Any:
            q, state = carry
            here = jnp.stack([q.location()[0], jnp.abs(q.factor()[0, 0]), loss(q)])
            updates, state = tx.update(jax.grad(loss)(q), state, q)
            return (optax.apply_updates(q, updates), state), here

        return np.asarray(jax.lax.scan(step, (q, tx.init(q)), length=STEPS + 1)[1])

    moments = at(*jnp.array(START))
    canonical = gaussian.Canonical(jnp.zeros(1), Full(jnp.eye(1)))
    starts = {"(m, s)": moments, "θ": canonical.at_natural(moments.natural())}
    walks = {}
    for method, name in itertools.product(METHODS, starts):
        walks[f"{method} in {name}"] = path(METHODS[method], starts[name])
    lowest = min(walk[:, 2].min() for walk in walks.values())
    for name, walk in walks.items():
        print(f"{name}: {walk[-1, 2] - lowest:.3f} nats above the lowest loss")

    mean, deviation = np.meshgrid(np.linspace(-2.5, 3, 240), np.geomspace(0.15, 2, 200))
    heights = jax.vmap(jax.vmap(lambda m, s: loss(at(m, s))))(mean, deviation)
    gaps = np.log(np.asarray(heights) - lowest + 0.02)
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.9))
    lines = []
    for ax, chart in zip(axes, (lambda m, s: (m, s), theta), strict=True):
        ax.contour(*chart(mean, deviation), gaps, 16, **CONTOURS)
        for (name, walk), colour in zip(walks.items(), COLOURS, strict=True):
            wide = 5 if colour == COLOURS[0] else 1.6
            (line,) = ax.plot([], [], color=colour, lw=wide, label=name)
            lines.append((line, np.stack(chart(*walk[:, :2].T))))
    axes[0].set(xlim=(-1.3, 1.9), ylim=(0.15, 0.9), xlabel="mean", ylabel="deviation")
    axes[1].set(xlim=(-20, 12), ylim=(-11, 0), xlabel="θ₁", ylabel="θ₂")
    axes[0].legend(loc="upper left", frameon=True, framealpha=0.9)

    def draw(frame: int) -> list[Any]:
        return [line.set_data(*points[:, : frame + 1]) for line, points in lines]

    frames = [*range(0, STEPS + 1, 2), *[STEPS] * 10]
    FuncAnimation(figure, draw, frames).save(out, PillowWriter(6), dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("contours.gif"))
    main(parser.parse_args().out)
