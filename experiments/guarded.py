"""The guarded step against the paper's schedule and Adam, on a small sparse GP.

    export NATGRAD_DATA=folder-of-parquet-files
    python experiments/guarded.py            # all sets: results/guarded.csv, .md
    python experiments/guarded.py boston     # one of them again
    python experiments/guarded.py --only 'guarded.*'   # some rules again, a pattern
    python experiments/guarded.py --quick    # the two synthetic sets, 50 steps
    python experiments/guarded.py --table    # the tables, also of guarded_tables.md

Hyperparameters are fixed: lengthscale √D, variance 2, M = 100, batches of 256. A gap is
how far the evidence bound of all the data is below its optimum, in nats per datum. The
optimum is from full-batch guarded steps. A run has failed if q is not finite, not
inside its family, or more than 1 nat per datum off at the end.
"""

import argparse
import csv
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import small_gp

import natgrad
from natgrad._guarded import GuardedState


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "guarded_tables.md"
CHECKS = (10, 50, 200, 1000)
INDUCING, ROWS, VARIANCE = 100, 256, 2.0


class Problem(NamedTuple):
    name: str
    likelihood: str
    scale: float
    splits: int
    is_full_batch: bool = False


PROBLEMS = (
    Problem("outliers", "Student-t", 0.05, 5),
    Problem("three classes", "robust-max", 1, 5),
    Problem("boston", "Student-t", 0.2, 5),
    Problem("pima", "Bernoulli", 1, 5),
    Problem("power", "Student-t", 0.2, 2),
    Problem("banana", "Bernoulli", 1, 2),
    Problem("concrete", "Student-t", 0.2, 2),
    Problem("energy", "Gaussian", 0.1, 1, is_full_batch=True),
    Problem("naval", "Gaussian", 0.1, 1),
)
SYNTHETIC = {"outliers": small_gp.outliers, "three classes": small_gp.three_classes}


# Optimizers: each with the coordinates it starts from


Table = list[dict[str, Any]]
Start = Callable[[int, int], Any]
Method = tuple[optax.GradientTransformation, Start]


def methods(batch_fraction: float) -> dict[str, Method]:
    in_theta, in_moments = small_gp.prior_in_theta, small_gp.prior
    paper = natgrad.log_linear(1e-4, 0.1, 5)
    return {
        "guarded": (natgrad.guarded_ngd(), in_moments),
        "guarded, B/N given": (natgrad.guarded_ngd(batch_fraction), in_moments),
        "paper, to 0.1 in 5": (natgrad.ngd(paper), in_theta),
        "Adam 0.1": (optax.adam(0.1), in_moments),
        "Adam 0.01": (optax.adam(0.01), in_moments),
    }


def stress_methods(batch_fraction: float) -> dict[str, Method]:
    """One more, where it is known to fail."""
    constant = (natgrad.ngd(0.1), small_gp.prior_in_theta)
    return {**methods(batch_fraction), "constant 0.1": constant}


def matching(compared: dict[str, Method], only: str) -> dict[str, Method]:
    return {name: compared[name] for name in compared if re.fullmatch(only, name)}


# Runs


def make_run(tx: optax.GradientTransformation, loss: Callable[..., Any]):
    """All steps of one method as one compiled function of the data."""
    tx = optax.with_extra_args_support(tx)

    def step(params: Any, state: Any, data: Any) -> tuple[Any, Any]:
        value_fn = lambda params: loss(params, data)
        value, grads = jax.value_and_grad(value_fn)(params)
        updates, state = tx.update(
            grads, state, params, value=value, grad=grads, value_fn=value_fn
        )
        return optax.apply_updates(params, updates), state

    @jax.jit
    def steps(params, state, data, batches, begin, end):
        def body(i, carry):
            params, state = carry
            batch = batches[i % len(batches)]
            return step(params, state, jax.tree.map(lambda rows: rows[batch], data))

        return jax.lax.fori_loop(begin, end, body, (params, state))

    def run(params: Any, data: Any, batches: Any, checks: tuple[int, ...]):
        """The parameters and the state of the optimizer at every check."""
        state, begin = tx.init(params), 0
        batches = jnp.asarray(batches)
        for end in checks:
            params, state = steps(params, state, data, batches, begin, end)
            yield end, params, state
            begin = end

    return run


def load(problem: Problem, seed: int) -> small_gp.Split:
    make = SYNTHETIC.get(problem.name, lambda: small_gp.table(problem.name))
    is_regression = problem.likelihood in ("Gaussian", "Student-t")
    return small_gp.split(*make(), seed, INDUCING, is_regression)


def diagnosis(state: Any, steps: int) -> dict[str, Any]:
    """What a guarded step counted."""
    state = getattr(state, "distributions", state)
    if not isinstance(state, GuardedState):
        return {}
    return {
        "tests_per_step": round(float(state.tests) / steps, 3),
        "halvings": int(state.halvings),
        "refused": int(state.refused),
        "last_step_size": f"{float(state.step_size):.3g}",
    }


def fixed(problem: Problem, checks: tuple[int, ...], only: str) -> Table:
    """Some methods on all splits of one set, its hyperparameters fixed."""
    latents = 3 if problem.likelihood == "robust-max" else 1
    likelihood = small_gp.LIKELIHOODS[problem.likelihood]
    num_data = len(load(problem, 0).y)
    rows = num_data if problem.is_full_batch else ROWS
    scale = jnp.asarray(float(problem.scale))

    def loss(q: Any, data: small_gp.Rows) -> Any:
        return small_gp.loss(q, data, likelihood, scale, num_data)

    whole = jax.jit(loss)
    is_stress = problem.name in SYNTHETIC
    compared = (stress_methods if is_stress else methods)(rows / num_data)
    compared = matching(compared, only)
    runs = {name: make_run(tx, loss) for name, (tx, _) in compared.items()}
    best_run = make_run(natgrad.guarded_ngd(1.0), loss)
    table = []
    for seed in range(problem.splits):
        x, y, inducing = map(jnp.asarray, load(problem, seed))
        data = small_gp.rows_of(x, y, inducing, math.sqrt(x.shape[1]), VARIANCE)
        every_row = np.arange(num_data)[None]
        optimum, drift = math.inf, math.inf
        start = small_gp.prior(latents, INDUCING)
        for _, q, _ in best_run(start, data, every_row, (20, 40, 60, 80)):
            last, optimum = optimum, float(whole(q, data))
            drift = (last - optimum) / num_data
            if drift < 1e-7:
                break
        batches = small_gp.minibatches(num_data, rows, checks[-1], seed)
        for name, (_, start) in compared.items():
            began = time.process_time()
            row: dict[str, Any] = {
                "set": problem.name,
                "likelihood": problem.likelihood,
                "scale": problem.scale,
                "N": num_data,
                "B": rows,
                "split": seed,
                "method": name,
            }
            gaps, counts = {}, {}
            for step, q, state in runs[name](
                start(latents, INDUCING), data, batches, checks
            ):
                counts = diagnosis(state, step)
                gaps[step] = (float(whole(q, data)) - optimum) / num_data
                if not (math.isfinite(gaps[step]) and q.is_inside().all()):
                    break
            for check in checks:
                row[f"gap_{check}"] = f"{gaps.get(check, math.nan):.3e}"
            row["failed"] = int(not gaps.get(checks[-1], math.nan) <= 1)
            row |= counts
            row["optimum"] = f"{-optimum / num_data:.6f}"
            row["optimum_drift"] = f"{drift:.1e}"
            row["cpu_seconds"] = round(time.process_time() - began, 2)
            table.append(row)
            print(*row.values(), flush=True)
    return table


# Tables


def read(path: Path) -> Table:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(table: Table, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    fields = list(dict.fromkeys(name for row in table for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def markdown(table: Table, checks: tuple[int, ...]) -> str:
    """Medians over splits; those of a run that failed count as infinite."""
    head = ["set", "rule", "failed", *map(str, checks)]
    head += ["tests/step", "halvings", "refused"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    groups: dict[tuple[str, str], Table] = {}
    for row in table:
        groups.setdefault((row["set"], row["method"]), []).append(row)
    last_name = None
    for (name, method), rows in groups.items():
        title = f"{name} / {rows[0]['likelihood']} ({len(rows)})"
        cells = ["" if name == last_name else title, method]
        cells.append(str(sum(int(row["failed"]) for row in rows)))
        for check in checks:
            values = [float(row[f"gap_{check}"]) for row in rows]
            values = np.where(np.isfinite(values), values, np.inf)
            # The worse of two middles, which is defined where some are infinite.
            cells.append(f"{sorted(values)[len(values) // 2]:.1e}")
        for field in ("tests_per_step", "halvings", "refused"):
            counts = [float(row[field]) for row in rows if row.get(field, "") != ""]
            cells.append(f"{np.median(counts):.3g}" if counts else "")
        lines.append("| " + " | ".join(cells) + " |")
        last_name = name
    return "\n".join(lines) + "\n"


def merged(before: Table, now: Table) -> Table:
    """Runs made again take the place of those before."""
    key = lambda row: (int(row["split"]), row["method"])
    found = {key(row): row for row in now}
    rows = [found.pop(key(row), row) for row in before]
    return [*rows, *found.values()]


def fractions(table: Table) -> str:
    """The gap without `batch_fraction` over the gap with it, the median of splits."""
    lines = ["| set | B/N | " + " | ".join(map(str, CHECKS)) + " |"]
    lines += ["|---" * (len(CHECKS) + 2) + "|"]
    for problem in PROBLEMS:
        # Rounding is all that is left of the first, and gaps of the second have a sign.
        if problem.is_full_batch or problem.likelihood == "robust-max":
            continue
        rows = [row for row in table if row["set"] == problem.name]
        told = [row for row in rows if row["method"] == "guarded, B/N given"]
        found = [row for row in rows if row["method"] == "guarded"]
        if not found:
            continue
        cells = [problem.name, f"{int(found[0]['B']) / int(found[0]['N']):.2f}"]
        for check in CHECKS:
            name = f"gap_{check}"
            pairs = zip(found, told, strict=True)
            ratios = [float(one[name]) / float(other[name]) for one, other in pairs]
            cells.append(f"{np.median(ratios):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def publish(mark: str, text: str) -> None:
    """Puts a table between its two marks in the page."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", help="all, if none is named")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", default=".*", help="names of rules, a pattern")
    options = parser.parse_args()
    name, checks, problems = "guarded", CHECKS, PROBLEMS
    if options.quick:
        name, checks, problems = "guarded_quick", (10, 50), PROBLEMS[:2]
    names = options.sets or [problem.name for problem in problems]
    path = RESULTS / f"{name}.csv"
    tables = {row["set"]: [] for row in read(path)}
    for row in read(path):
        tables[row["set"]].append(row)
    for problem in problems:
        if problem.name in names and not options.table:
            before, now = (
                tables.get(problem.name, []),
                fixed(problem, checks, options.only),
            )
            tables[problem.name] = merged(before, now)
            write([row for table in tables.values() for row in table], path)
    order = [problem.name for problem in problems if problem.name in tables]
    table = [row for name in order for row in tables[name]]
    write(table, path)
    text = markdown(table, checks)
    path.with_suffix(".md").write_text(text)
    if not options.quick:
        publish("guarded", text)
        publish("fraction", fractions(table))
    print(text)


if __name__ == "__main__":
    main()
