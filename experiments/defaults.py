"""`gp.fit` with nothing said, against twelve settings chosen by hand.

    export NATGRAD_DATA=folder-of-parquet-files
    python experiments/defaults.py            # all sets: results/defaults.csv
    python experiments/defaults.py --table    # results/defaults.md, and in the docs

The twelve are Adam at 0.03 or 0.01, constant or falling as half a cosine, with 25, 50
or 100 inducing inputs, twice as many from 2,000 rows on, each for 5,000 steps of 256
rows, q taking guarded steps. What counts is the mean log density of the tenth of the
rows that were held out. Runs that are in the CSV are not made again.
"""

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import hyperparameters as study
import jax
import jax.numpy as jnp
import numpy as np
import optax

import natgrad
from natgrad import gp
from natgrad.data import Arrays, Batch


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
SETS = ("energy", "boston", "pima", "concrete", "banana", "power", "kin8nm", "naval")
RATES, SCHEDULES = (0.03, 0.01), ("constant", "cosine")
STEPS, CHUNK = 5000, 500


def scale_by_told_rate() -> optax.GradientTransformationExtraArgs:
    """The rate is an input, so that all settings of one size are compiled once."""

    def update(updates: Any, state: Any, params: Any = None, *, rate: Any, **_: Any):
        return jax.tree.map(lambda u: -rate * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update)  # pyright: ignore


def by_hand(data: study.Data, start: gp.SparseGP, seed: int) -> Any:
    """A function from a rate for each step to the model it ends with."""
    source = Arrays(Batch(data.x, data.y), 256, seed)
    adam = optax.chain(optax.scale_by_adam(), scale_by_told_rate())
    natural = natgrad.guarded_ngd(source.fraction)
    rule = gp.alternating(natural, adam, source.num_data)

    @jax.jit
    def steps(carry: Any, batches: Any, rates: Any, progress: Any) -> Any:
        def body(carry: Any, now: Any) -> Any:
            batch, rate, progress = now
            *carry, _ = rule.step(*carry, batch, rate=rate, progress=progress)
            return tuple(carry), None

        return jax.lax.scan(body, carry, (batches, rates, progress))[0]

    def run(rates: np.ndarray) -> gp.SparseGP:
        carry, progress = (start, rule.init(start)), np.arange(STEPS) / STEPS
        for at in range(0, STEPS, CHUNK):
            part = slice(at, at + CHUNK)
            batches = source.take(at, CHUNK)
            carry = steps(carry, batches, rates[part], progress[part])
        return carry[0]

    return run


def score(model: gp.SparseGP, data: study.Data) -> tuple[float, float]:
    """The log density of the test rows, and the bound, per datum."""
    whole = Batch(jnp.asarray(data.x), jnp.asarray(data.y))
    bound = float(jax.jit(gp.elbo)(model, whole)) / len(data.y)
    density = gp.predictor(model).log_density(data.x_test, data.y_test)
    return float(density.mean()), bound


def runs(problem: study.Problem, seed: int, done: set, sizes: list[int] | None) -> Any:
    data = study.load(problem, seed)
    likelihood = study.model_of(problem, data, seed).likelihood
    row = lambda name, model, began: {
        "set": problem.name,
        "seed": seed,
        "setting": name,
        **dict(
            zip(
                ("test", "bound"),
                (f"{value:.5f}" for value in score(model, data)),
                strict=True,
            )
        ),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    if (problem.name, str(seed), "default") not in done:
        began = time.process_time()
        start = gp.initialize(data.x, likelihood)
        fitted = gp.fit(start, (data.x, data.y), progress=False)
        yield row("default", fitted.params, began)
    usual = (25, 50, 100) if len(data.y) < 2000 else (50, 100, 200)
    for size in usual if sizes is None else sizes:
        settings = list(itertools.product(RATES, SCHEDULES))
        name_of = lambda rate, schedule: f"{schedule} {rate}, M {size}"  # noqa: B023
        wanted = [
            setting
            for setting in settings
            if (problem.name, str(seed), name_of(*setting)) not in done
        ]
        if not wanted:
            continue
        start = gp.initialize(data.x, likelihood, size, seed)
        run = by_hand(data, start, seed)
        for rate, schedule in wanted:
            began = time.process_time()
            rates = np.full(STEPS, rate)
            if schedule == "cosine":
                rates = rate * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS)) / 2
            yield row(name_of(rate, schedule), run(rates), began)


def table(path: Path) -> str:
    """For each set, the default beside the best and the worst of the twelve."""
    rows = study.read(path)
    lines = [
        "| set | default | best by hand | gap | worst by hand | settings | the best |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        seeds = sorted({row["seed"] for row in rows if row["set"] == name})
        mean: dict[str, list[float]] = {}
        for row in rows:
            if row["set"] == name:
                mean.setdefault(row["setting"], []).append(float(row["test"]))
        full = {k: np.mean(v) for k, v in mean.items() if len(v) == len(seeds)}
        if "default" not in full or len(full) < 2:
            continue
        default = full.pop("default")
        best, worst = max(full, key=lambda k: full[k]), min(full.values())
        lines.append(
            f"| {name} ({len(seeds)} splits) | {default:.4f} | {full[best]:.4f} | "
            f"{full[best] - default:.4f} | {worst:.4f} | {len(full)} | {best} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="*", help="of inducing inputs")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    path = RESULTS / "defaults.csv"
    problems = {problem.name: problem for problem in study.PROBLEMS}
    if not arguments.table:
        for seed, name in itertools.product(range(arguments.seeds), arguments.sets):
            key = ("set", "seed", "setting")
            done = {tuple(row[k] for k in key) for row in study.read(path)}
            for row in runs(problems[name], seed, done, arguments.sizes):
                study.append(row, path)
                print(*row.values(), flush=True)
    text = table(path)
    path.with_suffix(".md").write_text(text)
    begin, end = "<!-- defaults -->\n", "<!-- end of defaults -->\n"
    before, rest = study.DOCUMENT.read_text().split(begin)
    study.DOCUMENT.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")
    print(text)


if __name__ == "__main__":
    main()
