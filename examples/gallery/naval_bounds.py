"""What do natural gradients gain if inputs repeat each other?

You compare natural gradients with Adam on a badly conditioned posterior. The data are
the decay of a ship's gas turbine and 16 sensors: two are constant, two are equal, and a
third pair agrees to four digits. Both runs start from one model, see the same batches
and train the hyperparameters with Adam at one rate. They differ in how they train the
posterior: with natural gradient steps, or with Adam as well.
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax

import natgrad
from natgrad import datasets, gp
from natgrad.train import in_turn


STEPS, ROWS = 1000, 256
TOLERANCE = 0.05  # 1,000 steps on noisy batches


def main(out: Path) -> None:
    jax.config.update("jax_enable_x64", True)
    x, y = datasets.load("naval")
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    x, y, x_test, y_test = x[train], y[train], x[test], y[test]
    constant = x.min(0) == x.max(0)
    mean, scale = x.mean(0), np.where(constant, 1, x.std(0))
    mean[constant] = x[0, constant]
    x, x_test = (x - mean) / scale, (x_test - mean) / scale
    y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
    data, total = (x, y), len(y)
    model = gp.initialize(x, gp.likelihoods.Gaussian(0.1), num_inducing=50)
    loss = lambda model, batch: -gp.elbo(model, batch, total)
    adam = optax.adam(optax.cosine_decay_schedule(0.03, STEPS))  # falls to 0
    natural = natgrad.guarded_ngd(ROWS / total)
    rules = {
        "natural gradients and Adam": gp.alternating(natural, adam, total),
        "Adam alone": in_turn(loss, adam),
    }

    _, ax = plt.subplots()
    ends = {}
    for (name, rule), colour in zip(rules.items(), ("#0072B2", "#D55E00"), strict=True):
        fitted, history = gp.fit(
            model, data, rule=rule, batch_size=ROWS, steps=STEPS, progress=False
        )
        steps, elbos = history.column("step"), history.column("objective")
        score = gp.predictor(fitted).log_density(x_test, y_test).mean()
        ends[name] = score
        print(f"{name}: ELBO {elbos[-1]:.2f} nats per row, held-out {score:.2f}")
        ax.plot(steps, elbos, color=colour)
        label = ax.text(steps[-1], elbos[-1] + 0.08, name, color=colour)
        label.set(ha="right", va="bottom")
    first, second = ends.values()
    ax.set_title(
        f"Held-out log density: {first:.1f} nats per row, with Adam alone {second:.1f}"
    )
    ax.set(xlabel="step", ylabel="ELBO, nats per row", ylim=(-2, 2.8))
    plt.savefig(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("naval_bounds.png"))
    main(parser.parse_args().out)
