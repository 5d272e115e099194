"""How far from the edge of the family a guarded step should stay: does it keep classes?

    export NATGRAD_DATA=folder-of-tables
    PYTHONPATH=. python experiments/margin.py   # writes results/margin.md

Hand-written digits of scikit-learn with robust-max: a class that no image is taken for
is lost. And sets with Student-t noise, whose steps leave the family too.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pandas
from sklearn.datasets import load_digits

from natgrad import _guarded as guarded, gp
from natgrad.data import Batch
from natgrad.gp import likelihoods
from natgrad.gp.inducing import k_means
from paper import problems, stochastic
from paper.stochastic import Run


MARGINS = (1, 4, 8)
SETS = ("boston", "kin8nm", "power", "protein", "year_head")
LOOKS = (3, 10, 50, 200, 1000)
SEEDS = 4


def digits(seed: int) -> problems.Problem:
    x, y = load_digits(return_X_y=True)
    centres = jnp.asarray(k_means(x / 16, 40, seed))
    kernel = gp.kernels.Matern52(8.0, 10.0)
    model = gp.SparseGP(kernel, likelihoods.RobustMax(10), centres)
    data = Batch(jnp.asarray(x / 16), jnp.asarray(y))
    return problems.Problem(model, data, data)


def robust(name: str) -> problems.Problem:
    made = problems.problem(name, "Student-t", 0)
    noise = likelihoods.StudentT(0.2, 3.0)
    model = gp.SparseGP(made.model.kernel, noise, made.model.inducing)
    return made._replace(model=model)


def trace(made: problems.Problem, told: Run) -> Any:
    rule = stochastic.rule_of(told, len(made.data.y))
    return pandas.DataFrame(stochastic.trace(made, rule, told)).set_index("iteration")


def at(run: Any, iteration: int) -> float:
    return float(run.bound[run.index <= iteration].iloc[-1])


def table_of_digits() -> list[str]:
    lines = [
        "| margin | seed | bound, nats per row | training errors |",
        "|---|---|---|---|",
    ]
    for margin in MARGINS:
        guarded.MARGIN = margin
        for seed in range(SEEDS):
            told = Run(
                *("margin", "digits", "robust-max", seed, "guarded", 100),
                rows=128,
                is_joint=False,
                checks=2,
            )
            run = trace(digits(seed), told)
            cells = (margin, seed, f"{run.bound.iloc[-1]:.3f}")
            error = f"{100 * run.error.iloc[-1]:.1f} %"
            lines.append(f"| {' | '.join(map(str, cells))} | {error} |")
            print(lines[-1], flush=True)
    return lines


def table_of_sets() -> list[str]:
    head = ["set", "rule", *(f"at {look}" for look in LOOKS)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in SETS:
        made = robust(name)
        base = Run(
            *("margin", name, "Student-t", 0, "guarded", 1000),
            is_joint=False,
            checks=31,
        )
        runs = {}
        for margin in MARGINS:
            guarded.MARGIN = margin
            runs[f"margin {margin}"] = trace(made, base)
        runs["the paper's, K = 5"] = trace(made, base.with_schedule(1e-4, 0.1, 5))
        for rule, run in runs.items():
            values = [f"{at(run, look):.4f}" for look in LOOKS]
            failed = " (failed)" if run.not_finite.iloc[-1] else ""
            lines.append(f"| {name} | {rule}{failed} | {' | '.join(values)} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    out = Path(__file__).parent / "results" / "margin.md"
    parser.add_argument("--out", type=Path, default=out)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    parts = [
        "Digits, robust-max, hyperparameters fixed, 100 steps on 128 rows each.\n",
        *table_of_digits(),
        "\nStudent-t noise of scale 0.2, hyperparameters fixed, batches of 256 rows, "
        "split 0: bound in nats per row.\n",
        *table_of_sets(),
    ]
    args.out.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
