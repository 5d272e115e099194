"""Whether the bands of a fitted posterior hold the truth as often as they say.

    python experiments/calibration.py --sets 1000
    python experiments/calibration.py --sets 1000 Poisson

Data sets are drawn from the prior: f at 60 uniform inputs and at 5 new ones, and y from
the likelihood, some with an exposure, trials or bounds. A sparse Gaussian process with
the true hyperparameters and 30 inducing inputs is fitted to each by guarded natural
steps, and the new values of f are compared with the central bands of q(f). Results go
to results/calibration.csv and .md.

Exact inference covers by definition. What is left is the error of the best Gaussian
q, independent between latent functions, and of the draws: their standard errors count
data sets, as the points of one are correlated.
"""

import argparse
import csv
import time
from collections.abc import Callable
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
from natgrad.data import Batch
from natgrad.gp import SparseGP, kernels, likelihoods, means
from natgrad.gp._sparse import projected_elbo
from natgrad.gp.likelihoods._rows import with_columns
from natgrad.linalg._triangular import eye_like


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
    # What comes with targets: drawn before them, as trials are, or made of them.
    columns: Callable[[Any], dict[str, Any]] = lambda key: {}
    bounds: Callable[[Any, Any], dict[str, Any]] = lambda key, y: {}


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
        "robust-max": Problem(one, likelihoods.RobustMax(3), steps=300),
        "softmax": Problem(one, likelihoods.Softmax(3), steps=40),
        "known noise": Problem(
            one,
            likelihoods.Gaussian(0.02),
            limit=0.015,
            steps=3,
            columns=lambda key: {"noise_sd": uniform(key, 0.0, 1.0)},
        ),
        "binomial": Problem(
            one,
            likelihoods.Binomial(),
            columns=lambda key: {"trials": jnp.floor(uniform(key, 1.0, 21.0))},
        ),
        "Weibull": Problem(one, likelihoods.Weibull(1.5), columns=exposures),
        "zero-inflated Poisson": Problem(
            one, likelihoods.ZeroInflatedPoisson(0.3), columns=exposures
        ),
        "zero-inflated negative binomial": Problem(
            one, likelihoods.ZeroInflatedNegativeBinomial(0.5, 0.3), columns=exposures
        ),
        "censored Gaussian": Problem(
            one, likelihoods.Censored(likelihoods.Gaussian(0.1)), bounds=in_range
        ),
        "censored Weibull": Problem(
            one, likelihoods.Censored(likelihoods.Weibull(1.5)), bounds=still_running
        ),
    }


# Columns


def uniform(key: Any, low: float, high: float) -> Any:
    return jax.random.uniform(key, (ROWS,), minval=low, maxval=high)


def exposures(key: Any) -> dict[str, Any]:
    return {"exposure": uniform(key, 0.2, 2.0)}


def in_range(key: Any, y: Any) -> dict[str, Any]:
    """An instrument that reads from −0.5 to 0.5, and some readings to a half only."""
    is_rough = jax.random.bernoulli(key, 0.2, (ROWS,))
    cell = jnp.floor(2 * y) / 2
    lower, upper = jnp.where(is_rough, cell, y), jnp.where(is_rough, cell + 0.5, y)
    lower, upper = jnp.where(y > 0.5, 0.5, lower), jnp.where(y > 0.5, jnp.inf, upper)
    low = y < -0.5
    return {
        "lower": jnp.where(low, -jnp.inf, lower),
        "upper": jnp.where(low, -0.5, upper),
    }


def still_running(key: Any, y: Any) -> dict[str, Any]:
    """Times until an event, of which some are cut off before it."""
    end = uniform(key, 0.2, 3.0)
    is_cut = y > end
    return {"lower": jnp.where(is_cut, end, y), "upper": jnp.where(is_cut, jnp.inf, y)}


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
    new = (jnp.arange(NEW, dtype=float)[:, None] + shift) * (WIDTH / NEW)
    both = jnp.concatenate([x, new])
    prior = problem.kernel(both, both)
    root = jnp.linalg.cholesky(prior + 1e-10 * eye_like(prior))
    latents = problem.likelihood.latents
    shape = (len(both),) if latents is None else (latents, len(both))
    noise = jax.random.normal(key_f, shape)
    f = (root @ noise[..., None])[..., 0]
    f = f + jnp.broadcast_to(problem.mean(both), f.shape)
    keys = jax.random.split(key_y, ROWS)
    # Keys of their own, so that targets without columns are drawn as before. Those
    # folded in with 0 to 3 would be the four above.
    columns = problem.columns(jax.random.fold_in(key, 4))

    def sample(key: Any, f: Any, columns: Any) -> Any:
        own, f = with_columns(problem.likelihood, f, columns)
        return own.sample(key, f)

    y = jax.vmap(sample, in_axes=(0, -1, 0))(keys, f[..., :ROWS], columns)
    columns |= problem.bounds(jax.random.fold_in(key, 5), y)
    return Draw(Batch(x, y, None, columns), new, f[..., ROWS:])


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
    """The new values of f in deviations from their means, [sets, ...], and gains."""

    def score(key: Any) -> tuple[Any, Any]:
        batch, new, truth = draw(problem, key)
        model, gain = fitted(problem, batch)
        mean, var = model.marginals(new)
        return (truth - mean) / jnp.sqrt(var), gain

    keys = jax.random.split(jax.random.key(seed), sets)
    run = jax.jit(lambda keys: lax.map(score, keys, batch_size=min(chunk, sets)))
    z, gain = run(keys)
    return np.asarray(z), np.asarray(gain)


# The same with the truth drawn from the exact posterior: what q itself is wrong by


def reweighted(problem: Problem, sets: int, seed: int = 0, draws: int = 4000) -> Any:
    """Statistics of each set by importance sampling from q, and effective shares."""

    def latents(rows: Any, v: Any, key: Any) -> Any:
        known = (v[..., None, :] @ rows.features)[..., 0, :] + rows.mean
        noise = jax.random.normal(key, known.shape)
        return known + jnp.sqrt(jnp.maximum(rows.rest, 0)) * noise

    def report(key: Any) -> tuple[Any, Any]:
        batch, new, _ = draw(problem, key)
        model, _ = fitted(problem, batch)
        q, y, columns = model.posterior, batch.y, batch.columns
        key_v, key_f, key_new = jax.random.split(key, 3)
        v = q.sample(key_v, (draws,))
        f = latents(model.project(batch.x), v, key_f)

        def log_prob(f: Any, y: Any, columns: Any) -> Any:
            own, f = with_columns(problem.likelihood, f, columns)
            return own.log_prob(f, y)

        each = jax.vmap(log_prob, in_axes=(-1, 0, 0))
        log_weight = jax.vmap(lambda f: each(f, y, columns).sum())(f)
        log_ratio = -(v**2).sum(-1) / 2 - q.log_prob(v)
        log_weight += log_ratio.reshape((draws, -1)).sum(1)
        weight = jax.nn.softmax(log_weight)
        mean, var = model.marginals(new)
        z = (latents(model.project(new), v, key_new) - mean) / jnp.sqrt(var)
        average = lambda values: jnp.tensordot(weight, values.astype(float), 1)
        share = 1 / (draws * (weight**2).sum())
        return {name: average(x) for name, x in statistics(z).items()}, share

    keys = jax.random.split(jax.random.key(seed), sets)
    run = jax.jit(lambda keys: lax.map(report, keys, batch_size=10))
    return jax.tree.map(np.asarray, run(keys))


# Tables


EXPECTED = {f"{level:.0%}": level for level in LEVELS} | {"below": 0.5, "z²": 1.0}


def statistics(z: Any) -> dict[str, Any]:
    """What central bands hold, and what they hardly see: a mean that is off."""
    half = lambda level: NormalDist().inv_cdf((1 + level) / 2)
    bands = {f"{level:.0%}": abs(z) < half(level) for level in LEVELS}
    return bands | {"below": z < 0, "z²": z**2}


def by_set(values: np.ndarray) -> tuple[float, float]:
    """The mean, and its standard error with data sets as the units."""
    means = values.reshape((len(values), -1)).mean(1)
    return float(means.mean()), float(means.std(ddof=1) / len(means) ** 0.5)


def row_of(name: str, part: str, found: dict[str, np.ndarray], limit: float) -> dict:
    """One line of the table, from statistics of each data set."""
    sets = len(found["z²"])
    row: dict[str, Any] = {"problem": name, "likelihood": part, "sets": sets}
    worst = 0.0
    for statistic, values in found.items():
        share, error = by_set(values)
        row |= {statistic: f"{share:.4f}", f"{statistic} se": f"{error:.4f}"}
        if statistic != "z²":
            worst = max(worst, abs(share - EXPECTED[statistic]))
    within = int(worst <= limit)
    return row | {"worst": f"{worst:.4f}", "limit": limit, "within": within}


def table_of(name: str, problem: Problem, sets: int, seed: int) -> list[dict]:
    z, gain = scores(problem, sets, seed)
    parts = {name: z}
    if name == "heteroskedastic":
        parts |= {"— its mean": z[:, 0], "— its log deviation": z[:, 1]}
    if name == "Gaussian":
        parts |= {plant: spoil(z) for plant, spoil in PLANTED.items()}
    note = f"last gain {gain.max():.0e}"
    table = [
        row_of(name, part, statistics(z), problem.limit) | {"note": note}
        for part, z in parts.items()
    ]
    if not isinstance(problem.likelihood, MULTICLASS):
        found, share = reweighted(problem, max(10, sets // 10), seed)
        note = f"effective share {np.median(share):.2f}"
        row = row_of(name, "— exact, by importance", found, problem.limit)
        table.append(row | {"note": note})
    return table


# Three latent functions for one label: q is too far from the posterior to reweight it.
MULTICLASS = (likelihoods.RobustMax, likelihoods.Softmax)

# A table must be able to fail: these are q's that are wrong in a known way.
PLANTED = {
    "deviation × 0.9": lambda z: z / 0.9,
    "mean + 0.2 deviations": lambda z: z - 0.2,
}


def markdown(table: list[dict[str, Any]]) -> str:
    head = ["likelihood", "sets", *EXPECTED, "worst", "limit", "note"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in table:
        cells = [row["likelihood"], str(row["sets"])]
        cells += [f"{row[name]} ± {row[f'{name} se']}" for name in EXPECTED]
        mark = "" if int(row["within"]) else " ✗"
        cells += [row["worst"] + mark, str(row["limit"]), row["note"]]
        lines.append("| " + " | ".join(cells) + " |")
    # Few sets where steps are many, so the table says how many of each.
    command = "python experiments/calibration.py --sets N NAME"
    return "\n".join([f"`{command}`, with N and NAME as in the table.", "", *lines, ""])


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
        seed = list(every).index(name)
        tables[name] = table_of(name, every[name], options.sets, seed)
        print(name, f"{time.process_time() - began:.0f} s", flush=True)
        order = [row for key in every if key in tables for row in tables[key]]
        write(order, path)
        path.with_suffix(".md").write_text(markdown(order))
    print(path.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
