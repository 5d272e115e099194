"""Whether the bands of a fitted posterior hold the truth as often as they say.

    NPROC=16 PJRT_NPROC=16 python experiments/calibration.py --sets 1000
    NPROC=16 PJRT_NPROC=16 python experiments/calibration.py --sets 1000 Poisson

Data sets are drawn from the prior: f at 60 uniform inputs and at 5 new ones, and y from
the likelihood. A sparse Gaussian process with the true hyperparameters and 30 inducing
inputs is fitted to each by guarded natural steps, and the new values of f are compared
with the central bands of q(f). Results go to results/calibration.csv and .md.

Exact inference covers by definition. What is left is the error of the best Gaussian
q, independent between latent functions, and of the draws: their standard errors count
data sets, as the points of one are correlated.

On a machine of two cores, set NPROC=16 and PJRT_NPROC=16: with as few threads, batched
triangular solves of jaxlib 0.10.2 can wait for each other for ever.
"""

import argparse
import csv
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import natgrad
from natgrad.gp import Batch, SparseGP, kernels, likelihoods, means
from natgrad.gp.sparse import projected_elbo


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
ROWS, NEW, INDUCING, WIDTH = 60, 5, 30, 6.0
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


class Problem(NamedTuple):
    """A model to draw from and to fit, and how far from exact it may be."""

    kernel: kernels.AbstractKernel
    likelihood: likelihoods.AbstractLikelihood
    mean: means.AbstractMean = means.Zero()
    limit: float = 0.025
    steps: int = 30


def problems() -> dict[str, Problem]:
    one = kernels.Matern52(1.0, 1.0)
    noisy = kernels.Separate([one, kernels.Matern52(2.0, 0.3)])
    level = means.Constant(np.asarray([0.0, -1.0]))
    return {
        "Gaussian": Problem(one, likelihoods.Gaussian(0.1), limit=0.015, steps=3),
        "Bernoulli": Problem(one, likelihoods.Bernoulli(), limit=0.015, steps=15),
        "Poisson": Problem(one, likelihoods.Poisson()),
        "Student-t": Problem(one, likelihoods.StudentT(0.3, 4.0)),
        "gamma": Problem(one, likelihoods.Gamma(2.0)),
        "ordinal": Problem(one, likelihoods.Ordinal([-1.0, 0.0, 1.0], 0.5)),
        "beta": Problem(one, likelihoods.Beta(8.0)),
        "negative binomial": Problem(one, likelihoods.NegativeBinomial(0.5)),
        "heteroskedastic": Problem(
            noisy, likelihoods.HeteroskedasticGaussian(), level, steps=40
        ),
        "robust-max": Problem(one, likelihoods.RobustMax(3), steps=60),
        "softmax": Problem(one, likelihoods.Softmax(3), steps=40),
    }


# Data


class Draw(NamedTuple):
    """A table, and the latent functions at inputs that are not in it."""

    batch: Batch
    new: Any
    truth: Any


def draw(problem: Problem, key: Any) -> Draw:
    key_x, key_new, key_f, key_y = jax.random.split(key, 4)
    x = jax.random.uniform(key_x, (ROWS, 1), maxval=WIDTH)
    # One in each fifth of the interval: points apart say more than points together.
    shift = jax.random.uniform(key_new, (NEW, 1))
    new = (jnp.arange(NEW)[:, None] + shift) * (WIDTH / NEW)
    both = jnp.concatenate([x, new])
    prior = problem.kernel(both, both)
    root = jnp.linalg.cholesky(prior + 1e-10 * jnp.eye(len(both)))
    latents = problem.likelihood.latents
    shape = (len(both),) if latents is None else (latents, len(both))
    noise = jax.random.normal(key_f, shape)
    f = (root @ noise[..., None])[..., 0]
    f = f + jnp.broadcast_to(problem.mean(both), f.shape)
    keys = jax.random.split(key_y, ROWS)
    y = jax.vmap(problem.likelihood.sample, in_axes=(0, -1))(keys, f[..., :ROWS])
    return Draw(Batch(x, y), new, f[..., ROWS:])


# Fit


def fitted(problem: Problem, batch: Batch) -> tuple[SparseGP, Any]:
    """The model after some guarded steps, and what the last five of them gained."""
    z = jnp.linspace(0, WIDTH, INDUCING)[:, None]
    model = SparseGP(problem.kernel, problem.likelihood, z, mean=problem.mean)
    rows = model.project(batch.x)
    tx: Any = natgrad.guarded_ngd(batch_fraction=1.0)
    at = lambda q: eqx.tree_at(lambda model: model.posterior, model, q)
    loss = lambda q: -projected_elbo(at(q), rows, batch)

    def step(carry: Any, _: Any) -> tuple[Any, Any]:
        q, state = carry
        value, grads = jax.value_and_grad(loss)(q)
        updates, state = tx.update(
            grads, state, q, value=value, grad=grads, value_fn=loss
        )
        return (optax.apply_updates(q, updates), state), value

    start = model.posterior, tx.init(model.posterior)
    (q, _), values = lax.scan(step, start, length=problem.steps)
    return at(q), values[-min(5, problem.steps - 1)] - loss(q)


def scores(problem: Problem, sets: int, seed: int = 0, chunk: int = 50) -> Any:
    """The new values of f in deviations from their means, [sets, values], and gains."""

    def score(key: Any) -> tuple[Any, Any]:
        batch, new, truth = draw(problem, key)
        model, gain = fitted(problem, batch)
        mean, var = model.marginals(new)
        return ((truth - mean) / jnp.sqrt(var)), gain

    keys = jax.random.split(jax.random.key(seed), sets)
    run = jax.jit(lambda keys: lax.map(score, keys, batch_size=min(chunk, sets)))
    z, gain = run(keys)
    return np.asarray(z), np.asarray(gain)


# Tables


def coverage(z: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """Of each statistic: what it should be, what it is, and its standard error.

    Central bands hardly see a mean that is off, hence the truths below the median.
    """
    bands = {
        f"{level:.0%}": (level, abs(z) < NormalDist().inv_cdf((1 + level) / 2))
        for level in LEVELS
    }
    found = bands | {"below": (0.5, z < 0)}
    return {
        name: (expected, *by_set(inside)) for name, (expected, inside) in found.items()
    }


def by_set(values: np.ndarray) -> tuple[float, float]:
    """The mean, and its standard error with data sets as the units."""
    means = values.reshape((len(values), -1)).mean(1)
    return float(means.mean()), float(means.std(ddof=1) / len(means) ** 0.5)


def rows_of(name: str, problem: Problem, z: np.ndarray, gain: np.ndarray) -> list[dict]:
    """One row for all latent functions, and one for each where there are several."""
    parts = {name: z}
    if name == "heteroskedastic":
        parts |= {"— its mean": z[:, 0], "— its log deviation": z[:, 1]}
    table = []
    for part, values in parts.items():
        row: dict[str, Any] = {"problem": name, "likelihood": part, "sets": len(z)}
        worst = 0.0
        for statistic, (expected, found, error) in coverage(values).items():
            row[statistic] = f"{found:.4f}"
            row[f"{statistic} se"] = f"{error:.4f}"
            worst = max(worst, abs(found - expected))
        square, error = by_set(values**2)
        row |= {
            "worst": f"{worst:.4f}",
            "limit": problem.limit,
            "within": int(worst <= problem.limit),
            "mean square": f"{square:.4f}",
            "mean square se": f"{error:.4f}",
            "largest gain": f"{gain.max():.1e}",
        }
        table.append(row)
    return table


# A table must be able to fail: these are q's that are wrong in a known way.
PLANTED = {
    "deviation × 0.9": lambda z: z / 0.9,
    "mean + 0.2 deviations": lambda z: z - 0.2,
}


def markdown(table: list[dict[str, Any]]) -> str:
    names = [f"{level:.0%}" for level in LEVELS] + ["below"]
    head = ["likelihood", "sets", *names, "worst", "limit", "mean z²", "last gain"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in table:
        cells = [row["likelihood"], str(row["sets"])]
        cells += [f"{row[name]} ± {row[f'{name} se']}" for name in names]
        mark = "" if int(row["within"]) else " ✗"
        cells += [row["worst"] + mark, str(row["limit"])]
        cells += [f"{row['mean square']} ± {row['mean square se']}"]
        lines.append("| " + " | ".join([*cells, row["largest gain"]]) + " |")
    return "\n".join(lines) + "\n"


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(table: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("likelihoods", nargs="*", help="all, if none is named")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=RESULTS / "calibration.csv")
    options = parser.parse_args()
    path, every = options.output, problems()
    tables: dict[str, list[dict[str, Any]]] = {}
    for row in read(path):
        tables.setdefault(row["problem"], []).append(row)
    for name in options.likelihoods or every:
        began = time.process_time()
        z, gain = scores(every[name], options.sets)
        tables[name] = rows_of(name, every[name], z, gain)
        if name == "Gaussian":
            for plant, spoil in PLANTED.items():
                parts = rows_of(plant, every[name], spoil(z), gain)
                tables[name] += [row | {"problem": name} for row in parts]
        print(name, f"{time.process_time() - began:.0f} s", flush=True)
        order = [row for key in every if key in tables for row in tables[key]]
        write(order, path)
        path.with_suffix(".md").write_text(markdown(order))
    print(path.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
