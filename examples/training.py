"""What does it take to train a model, to watch it, and not to lose it?

First a model of one's own: Bayesian logistic regression from minibatches, any loss of
any tree with distributions through `natgrad.fit`. Then a sparse Gaussian process
through `natgrad.gp.fit`, with held-out data and checkpoints: the run is stopped half
way, taken up from its folder, and compared, bit for bit, with one that was not stopped.

    python examples/training.py --out figure.png
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import natgrad
from natgrad import gp
from natgrad.data import Batch
from natgrad.families import gaussian
from natgrad.linalg import Sqrt
from natgrad.train import History, Record


jax.config.update("jax_enable_x64", True)

ROWS, HELD_OUT, STEPS = 2000, 500, 400


class Stop(Exception):
    """Stands for whatever ends a run before its time."""


class Result(NamedTuple):
    weights: np.ndarray
    true_weights: np.ndarray
    history: History
    difference: float


def logistic_regression(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The posterior mean of the weights, and the weights the labels were drawn with."""
    weights = np.asarray([1.5, -1.0, 0.5])
    x = rng.standard_normal((ROWS, 3))
    y = np.where(rng.logistic(size=ROWS) < x @ weights, 1.0, -1.0)
    prior = gaussian.Moments(jnp.zeros(3), Sqrt(jnp.eye(3)))

    def loss(q: gaussian.Moments, batch: Batch, key: jax.Array) -> jax.Array:
        """Minus the evidence bound of all rows, in nats, from a batch and draws."""
        logits = q.sample(key, (20,)) @ batch.x.T
        fit = jax.nn.log_sigmoid(batch.y * logits).mean()
        return q.kl(prior) - ROWS * fit

    q, history = natgrad.fit(loss, prior, (x, y), steps=300)
    print(f"logistic regression: {history}")
    return np.asarray(q.mean), weights


def gaussian_process(rng: np.random.Generator, folder: Path) -> tuple[Any, float]:
    """The history of a run in two parts, and how far it ends from one in one part."""
    x = rng.uniform(-3, 3, (ROWS + HELD_OUT, 2))
    y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_t(3, len(x))
    data, held_out = (x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:])
    model = gp.initialize(x, gp.likelihoods.StudentT(0.3), num_inducing=30)

    whole = gp.fit(model, data, held_out=held_out, steps=STEPS)

    def stop(record: Record, _: Any) -> None:
        if record.step >= STEPS // 2:
            raise Stop

    options: dict[str, Any] = {"held_out": held_out, "steps": STEPS}
    options |= {"checkpoint": folder, "save_seconds": 0.1}
    try:
        gp.fit(model, data, callbacks=[stop], **options)
    except Stop:
        print(f"stopped; the folder holds {sorted(p.name for p in folder.iterdir())}")
    resumed = gp.fit(model, data, resume=True, **options)

    pairs = zip(*map(jax.tree.leaves, (whole.params, resumed.params)), strict=True)
    difference = max(float(jnp.abs(one - other).max()) for one, other in pairs)
    mean, _ = gp.predictor(resumed.params).predict(held_out[0])
    error = np.sqrt(np.mean((mean - held_out[1]) ** 2))
    print(f"held-out root mean square error: {error:.3f}")
    print(f"largest difference between the stopped run and the other: {difference}")
    return resumed.history, difference


def main(out: Path | None = None) -> Result:
    rng = np.random.default_rng(0)
    weights, true_weights = logistic_regression(rng)
    with tempfile.TemporaryDirectory() as folder:
        history, difference = gaussian_process(rng, Path(folder))
    if out is not None:
        natgrad.plot.history(history)
        plt.savefig(out, dpi=110)
        plt.close()
    return Result(weights, true_weights, history, difference)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to save the figure")
    main(parser.parse_args().out)
