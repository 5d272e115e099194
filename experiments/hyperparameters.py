"""Optimizers and schedules for the hyperparameters of a sparse GP.

    export NATGRAD_DATA=folder-of-parquet-files
    python experiments/hyperparameters.py             # all of it: two hours of a core
    python experiments/hyperparameters.py boston --only "cosine.*"    # a part
    python experiments/hyperparameters.py --table     # the tables, also in the docs

q takes guarded steps; kernel, likelihood and inducing inputs are moved by the
candidate. Matérn-5/2, one lengthscale per input from √D, variance 2, M = 100 from
k-means, batches of 256. What counts is the evidence bound of all the rows in nats per
datum after the last step. Runs that are in the CSV are not made again.

The rate of every step is an input of the compiled loop, so all schedules of one
optimizer share a compilation.
"""

import argparse
import csv
import itertools
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import small_gp
from hyperparameters_candidates import (
    MAKERS,
    SETTINGS,
    Candidate,
    candidates,
    dual_alternating,
)

import natgrad
from natgrad import gp
from natgrad._optim import SplitState
from natgrad.data import Batch
from natgrad.errors import FitError
from natgrad.gp._steps import AlternatingState


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "hyperparameters_tables.md"
INDUCING, ROWS, VARIANCE = 100, 256, 2.0
CHUNK = 200
STEPS = 5000


# Data


class Problem(NamedTuple):
    name: str
    likelihood: str


PROBLEMS = (
    Problem("boston", "Student-t"),
    Problem("naval", "beta"),
    Problem("kin8nm", "Student-t"),
    Problem("concrete", "Student-t"),
    Problem("energy", "Gaussian"),
    Problem("power", "Student-t"),
    Problem("pima", "Bernoulli"),
    Problem("banana", "Bernoulli"),
    Problem("wine_red", "ordinal"),
    Problem("bike", "negative binomial"),
)


class Data(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(problem: Problem, seed: int) -> Data:
    """Nine tenths of the rows to learn from and a tenth to test on, both scaled."""
    x, y = small_gp.table(problem.name)
    if problem.likelihood == "beta":
        y = np.clip((y - y.min()) / (y.max() - y.min()), 1e-3, 1 - 1e-3)
    if problem.likelihood == "ordinal":
        y = np.unique(y, return_inverse=True)[1].astype(float)
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    test, rows = order[: len(y) // 10], order[len(y) // 10 :]
    deviation = x[rows].std(0)
    is_constant = deviation < 1e-12 * np.maximum(1, np.abs(x[rows].mean(0)))
    x = (x - x[rows].mean(0)) / np.where(is_constant, 1, deviation)
    if problem.likelihood in ("Gaussian", "Student-t"):
        y = (y - y[rows].mean()) / y[rows].std()
    return Data(x[rows], y[rows], x[test], y[test])


def model_of(problem: Problem, data: Data, seed: int) -> gp.SparseGP:
    columns = data.x.shape[1]
    make: dict[str, Callable[[], Any]] = {
        "Gaussian": lambda: gp.likelihoods.Gaussian(1.0),
        "Student-t": lambda: gp.likelihoods.StudentT(1.0, 3.0),
        "Bernoulli": lambda: gp.likelihoods.Bernoulli(),
        "beta": lambda: gp.likelihoods.Beta(1.0),
        "ordinal": lambda: gp.likelihoods.Ordinal(
            np.arange(data.y.max()) - data.y.max() / 2, learn_edges=True
        ),
        "negative binomial": lambda: gp.likelihoods.NegativeBinomial(1.0),
    }
    return gp.SparseGP(
        gp.kernels.Matern52(np.full(columns, math.sqrt(columns)), VARIANCE),
        make[problem.likelihood](),
        gp.inducing.k_means(data.x, INDUCING, seed),
    )


def batches(num_data: int, steps: int, seed: int) -> np.ndarray:
    """Row numbers, cut from an endless sequence of permutations."""
    rng, rows = np.random.default_rng(seed), min(ROWS, num_data)
    if rows == num_data:
        return np.broadcast_to(np.arange(num_data), (steps, num_data))
    epochs = -(-steps * rows // num_data)
    order = np.concatenate([rng.permutation(num_data) for _ in range(epochs)])
    return order[: steps * rows].reshape(steps, rows)


# Runs


PLATEAU = optax.contrib.reduce_on_plateau(
    factor=0.5, patience=2, rtol=0.0, atol=1e-3, accumulation_size=100
)


class Loop(NamedTuple):
    """The state of a run, and so many steps of it as one compiled function."""

    init: Callable[[gp.SparseGP], Any]
    steps: Callable[..., Any]


def loop_of(candidate: Candidate, num_data: int) -> Loop:
    maker = optax.inject_hyperparams(MAKERS[candidate.optimizer])
    natural = natgrad.guarded_ngd(min(ROWS, num_data) / num_data)
    make = gp.alternating if candidate.form == "ordinary" else dual_alternating
    rule = make(natural, maker(learning_rate=0.0, **SETTINGS), num_data)

    def with_rate(state: AlternatingState, rate: Any, more: Any) -> AlternatingState:
        halves: SplitState = state.ordinary  # pyright: ignore
        theirs = halves.hyperparameters._replace(  # pyright: ignore
            hyperparams={"learning_rate": rate, **more}
        )
        return state._replace(ordinary=halves._replace(hyperparameters=theirs))

    def init(model: gp.SparseGP) -> Any:
        return model, rule.init(model), PLATEAU.init(jnp.zeros(()))

    @jax.jit
    def steps(carry: Any, x: Any, y: Any, now: Any, more: Any, flag: Any):
        def body(carry: Any, now: Any) -> tuple[Any, Any]:
            model, state, plateau = carry
            rows, rate, progress = now
            rate = rate * jnp.where(flag, plateau.scale, 1.0)
            state = with_rate(state, rate, more)
            batch = Batch(x[rows], y[rows])
            model, state, loss = rule.step(model, state, batch, progress=progress)
            _, plateau = PLATEAU.update(rate, plateau, value=loss / num_data)
            return (model, state, plateau), loss

        return jax.lax.scan(body, carry, now)

    return Loop(init, steps)


def averaged(model: gp.SparseGP, state: AlternatingState) -> gp.SparseGP:
    """Where schedule-free Adam is evaluated, beside where it takes its gradients."""
    halves: Any = state.ordinary
    inner = halves.hyperparameters.inner_state
    empty = lambda node: isinstance(node, optax.MaskedNode)

    def at(z: Any, y: Any) -> Any:
        return y if empty(z) else (y - (1 - inner.b1) * z) / inner.b1

    return jax.tree.map(at, inner.z, model, is_leaf=empty)


def runs(
    problem: Problem, seed: int, wanted: dict, horizons: list[int], done: set
) -> Iterator[dict[str, Any]]:
    """A row of the table for each candidate and horizon that is not done."""
    data = load(problem, seed)
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    num_data = len(y)
    start = model_of(problem, data, seed)
    start.likelihood.check(data.y)
    order = jnp.asarray(batches(num_data, max(horizons), seed))
    extra = jnp.asarray(batches(num_data, CHUNK, 100 + seed))
    whole = jax.jit(lambda model: gp.elbo(model, Batch(x, y), num_data) / num_data)

    def tested(model: gp.SparseGP) -> float:
        try:
            predictor = gp.predictor(model)
        except FitError:
            return math.nan
        return float(predictor.log_density(data.x_test, data.y_test).mean())

    loops: dict[tuple[str, str], Loop] = {}
    for (name, candidate), steps in itertools.product(wanted.items(), horizons):
        if (problem.name, str(seed), name, str(steps)) in done:
            continue
        kind = (candidate.optimizer, candidate.form)
        loop = loops.setdefault(kind, loop_of(candidate, num_data))
        rates = jnp.asarray(candidate.rates(steps))
        progress = jnp.arange(steps) / steps
        more = {name: jnp.asarray(getattr(candidate, name)) for name in SETTINGS}
        began = time.process_time()
        carry, curve = loop.init(start), []
        for at in range(0, steps, CHUNK):
            part = slice(at, at + CHUNK)
            now = (order[part], rates[part], progress[part])
            carry, _ = loop.steps(carry, x, y, now, more, candidate.on_plateau)
            if (at + CHUNK) % 1000 == 0:
                curve.append(float(whole(carry[0])))
            if at + CHUNK < steps:
                continue
            model, state, plateau = carry
            if candidate.optimizer == "schedule-free":
                model = averaged(model, state)
            # With the rate zero only q moves, and the guard has no floor.
            still = (extra, jnp.zeros(CHUNK), jnp.zeros(CHUNK))
            (after, *_), _ = loop.steps(loop.init(model), x, y, still, more, False)
            inner: Any = state.ordinary
            kernel: Any = model.kernel
            inner = inner.hyperparameters.inner_state
            yield {
                "set": problem.name,
                "likelihood": problem.likelihood,
                "N": num_data,
                "seed": seed,
                "candidate": name,
                "steps": at + CHUNK,
                "elbo": f"{float(whole(model)):.5f}",
                "elbo_polished": f"{float(whole(after)):.5f}",
                "test": f"{tested(model):.5f}",
                "test_polished": f"{tested(after):.5f}",
                "variance": f"{float(kernel.variance):.4g}",
                "last_rate": f"{float(rates[at + CHUNK - 1] * plateau.scale):.3g}"
                if candidate.on_plateau
                else "",
                "estimate": f"{float(inner.estim_lr):.3g}"
                if candidate.optimizer == "Prodigy"
                else "",
                "refused": int(state.natural.refused),
                "cpu_seconds": round(time.process_time() - began, 1),
                "curve": " ".join(f"{value:.4f}" for value in curve),
            }


# Tables


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, Any], path: Path) -> None:
    is_new = not path.exists()
    path.parent.mkdir(exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def markdown(table: list[dict[str, str]], measure: str = "elbo") -> str:
    """How far each candidate is below the best on each set, in nats per datum."""
    lines = []
    for seed, steps in sorted({(row["seed"], int(row["steps"])) for row in table}):
        rows = [r for r in table if (r["seed"], int(r["steps"])) == (seed, steps)]
        sets = [p.name for p in PROBLEMS if p.name in {r["set"] for r in rows}]
        value = {(r["set"], r["candidate"]): float(r[measure]) for r in rows}
        value = {key: v if math.isfinite(v) else -math.inf for key, v in value.items()}
        is_rival = lambda name: re.fullmatch(RIVALS, name) is not None
        best = {
            s: max(
                (v for (t, name), v in value.items() if t == s and is_rival(name)),
                default=0.0,
            )
            for s in sets
        }
        lines += [f"Seed {seed}, {steps} steps, {TITLES[measure]}:\n"]
        lines += ["| candidate | " + " | ".join(sets) + " | worst |"]
        lines += ["|---" * (len(sets) + 2) + "|"]
        lines += ["| best | " + " | ".join(f"{best[s]:.4f}" for s in sets) + " | |"]
        names = {row["candidate"] for row in rows}
        for name in [name for name in candidates() if name in names]:
            gaps = [best[s] - value.get((s, name), math.nan) for s in sets]
            cells = ["" if math.isnan(gap) else f"{gap:.4f}" for gap in gaps]
            worst = max(gap for gap in gaps if not math.isnan(gap))
            lines += [f"| {name} | " + " | ".join(cells) + f" | {worst:.4f} |"]
        lines += [""]
    return "\n".join(lines)


RIVALS = r"(constant|cosine) [\d.]+|near .*"
"""What the best of a set is taken from: the grid fixed beforehand, and the default."""

TITLES = {"elbo": "ELBO", "test": "log density of the test rows"}


def write_tables(path: Path) -> None:
    """Beside the CSV, and between the two marks in the document."""
    table = read(path)
    text = markdown(table) + "\n" + markdown(table, "test")
    path.with_suffix(".md").write_text(text)
    begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
    if DOCUMENT.exists():
        before, rest = DOCUMENT.read_text().split(begin)
        _, after = rest.split(end)
        own = markdown(table)
        DOCUMENT.write_text(f"{before}{begin}\n{own}\n{end}{after}")
    print(text)


class Part(NamedTuple):
    """Some of the study: the candidates that match, on some sets."""

    sets: tuple[str, ...]
    patterns: tuple[str, ...]
    seed: int = 0


EIGHT = ("naval", "kin8nm", "power", "energy", "concrete", "boston", "pima", "banana")
STUDY = (
    Part(EIGHT, ("near (0.1|0.03)", "near 0.03, Z 3", "cosine (0.1|0.03|0.01)")),
    Part(EIGHT, ("constant .*", "cosine 0.003", "near 0.01")),
    Part(("boston", "pima", "concrete", "kin8nm"), ("dual near 0.03",)),
    Part(("kin8nm", "naval"), ("spread 0.03.*", "cosine 0.03, .*")),
    Part(
        ("kin8nm", "boston", "naval"),
        ("plateau 0.03", "schedule-free 0.03", "Prodigy.*"),
    ),
    Part(EIGHT, ("near (0.1|0.03)", "near 0.03, Z 3", "cosine (0.1|0.01)"), 1),
    Part(
        ("wine_red", "bike"), ("near (0.1|0.03)", "near 0.03, Z 3", "cosine (0.1|0.01)")
    ),
)


def make(part: Part, horizons: list[int], path: Path) -> None:
    is_wanted = lambda name: any(re.fullmatch(p, name) for p in part.patterns)
    wanted = {name: c for name, c in candidates().items() if is_wanted(name)}
    fields = ("set", "seed", "candidate", "steps")
    for name in part.sets:
        problem = next(p for p in PROBLEMS if p.name == name)
        done = {tuple(row[field] for field in fields) for row in read(path)}
        for row in runs(problem, part.seed, wanted, horizons, done):
            append(row, path)
            print(*list(row.values())[:-1], flush=True)
        jax.clear_caches()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", help="all, if none is named")
    parser.add_argument("--steps", type=int, nargs="*", default=[STEPS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[".*"], help="patterns")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "hyperparameters.csv"
    some = Part(tuple(options.sets), tuple(options.only), options.seed)
    for part in () if options.table else (some,) if options.sets else STUDY:
        make(part, options.steps, path)
    write_tables(path)


if __name__ == "__main__":
    main()
