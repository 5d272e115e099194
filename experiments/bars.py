"""The bars of the step size: guarded steps, the paper's schedule and Adam, everywhere.

    export NATGRAD_DATA=folder-of-tables
    python experiments/bars.py                     # all: some hours of one core
    python experiments/bars.py naval --splits 0    # some sets, some splits

It ends with the tables of results/bars.md, which bars_table.py also writes alone.

Matérn-5/2, lengthscale √D, variance 2, q at the prior, M = 100 from k-means, batches of
256, float64. A run with hyperparameters fixed is held against the optimum of the bound,
which is found by guarded steps on all rows. Every run is one line of results/bars.csv,
and a run that is there is not made again; results/bars_whole.csv has the steps on all
rows. Set JAX_COMPILATION_CACHE_DIR to go on later without compiling again.
"""

import argparse
import csv
import functools
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import bars_table
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from bars_cases import CASES, ROWS, SPLITS, Case, load, model_of

import natgrad
from natgrad import gp
from natgrad._guarded import GuardedState
from natgrad.data import Arrays, Batch
from natgrad.errors import InputWarning
from natgrad.gp._fit import default_rule
from natgrad.gp._sparse import Projection, projected_elbo
from natgrad.train._rules import RATE, Rule, in_turn


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
CHECKS = (10, 50, 200, 1000, 5000)
SHORT = 1000
"""How long the runs are that the guarded ones are held against."""

CHUNK = 4096
MOST = 300
"""How many steps on all rows are taken to find the optimum."""

FEW = 30
"""The same where a step on all rows takes seconds."""

TOLERANCE = 1e-10
"""Nats per datum that five such steps gain when it is found."""

KINDS = ("paper", "stress", "hostile", "large")
ADAMS = ("Adam 0.01", "Adam 0.1", "Adam 0.001")
FIELDS = (
    *("set", "likelihood", "kind", "N", "M", "split", "mode", "method", "steps"),
    *(f"elbo_{check}" for check in CHECKS),
    *("is_good", "not_finite", "tests_200", "tests", "halvings", "refused"),
    *("rate", "cpu_seconds"),
)
WHOLE_FIELDS = (
    *("set", "likelihood", "kind", "N", "M", "split", "optimum", "gain_of_last_5"),
    *("gap_1", "to_1e-3", "to_1e-6", "steps", "tests", "refused", "cpu_seconds"),
)


class Data(NamedTuple):
    """The rows, and what the model sees of them where its hyperparameters are fixed."""

    x: Any
    y: Any
    seen: Projection | None = None


# Rules


def adam() -> optax.GradientTransformationExtraArgs:
    """Adam, its rate an argument of the step, so that all rates are compiled once."""
    inner = optax.scale_by_adam()

    def update(updates: Any, state: Any, params: Any = None, *, rate: Any, **_: Any):
        updates, state = inner.update(updates, state, params)
        return jax.tree.map(lambda u: -rate * u, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, cast(Any, update))


def on_posterior(optimizer: optax.GradientTransformation, num_data: float) -> Rule:
    """Moves q alone, of rows that are projected already, and forgives nothing."""
    tx = optax.with_extra_args_support(optimizer)

    def step(model: Any, state: Any, batch: Batch, *, seen: Any, **extra: Any):
        def moved(q: Any) -> gp.SparseGP:
            return eqx.tree_at(lambda model: model.posterior, model, q)

        loss = lambda q: -projected_elbo(moved(q), seen, batch, num_data)
        q = model.posterior
        value, grad = jax.value_and_grad(loss)(q)
        told = {**extra, "value": value, "grad": grad, "value_fn": loss}
        updates, state = tx.update(grad, state, q, **told)
        return moved(optax.apply_updates(q, updates)), state, value

    return Rule(lambda model: tx.init(model.posterior), step)


def ramp(steps: int) -> optax.GradientTransformation:
    return natgrad.mirror_descent(natgrad.log_linear(1e-4, 0.1, steps))


def fixed_rules(case: Case, num_data: float) -> dict[str, tuple[Rule, float]]:
    """What moves q alone, each with the rate of Adam that it needs."""
    guarded = natgrad.guarded_ngd(min(1.0, ROWS / num_data))
    table = {"guarded": (gp.alternating(guarded, optax.set_to_zero(), num_data), 0.0)}
    for steps in case.ramps:
        table[f"paper {steps}"] = (on_posterior(ramp(steps), num_data), 0.0)
    of_q = on_posterior(adam(), num_data)
    return table | {name: (of_q, float(name.split()[1])) for name in ADAMS}


def joint_rules(case: Case, num_data: float) -> dict[str, tuple[Rule, float]]:
    """What moves q and the hyperparameters."""
    guarded = natgrad.guarded_ngd(min(1.0, ROWS / num_data))
    loss = lambda model, batch: -gp.elbo(model, batch, num_data)
    of_all = in_turn(loss, adam())
    paper, beside_adam = ramp(case.ramps[0]), gp.alternating(guarded, adam(), num_data)
    return {
        "default": (default_rule(num_data, min(1.0, ROWS / num_data)), RATE),
        "guarded": (beside_adam, 0.01),
        "guarded, 0.1": (beside_adam, 0.1),
        f"paper {case.ramps[0]}": (gp.alternating(paper, adam(), num_data), 0.01),
        **{name: (of_all, float(name.split()[1])) for name in ADAMS},
    }


# Runs


class Bench(NamedTuple):
    """All that is compiled for a case; it serves every split, as shapes are equal."""

    fixed: dict[str, tuple[Rule, float]]
    joint: dict[str, tuple[Rule, float]]
    advance: Callable[..., Any]
    bound: Callable[..., Any]
    project: Callable[..., Any]
    whole_rule: Rule
    whole_step: Callable[..., Any]


@functools.cache
def bench(case: Case, total: int) -> Bench:
    num_data = float(total)

    @functools.partial(jax.jit, static_argnums=0)
    def advance(rule, model, state, data, places, begin, end, rate, steps):
        """Steps `begin` to `end`, and how many losses of theirs were not finite."""

        def body(i, carry):
            model, state, wrong = carry
            rows = places[i]
            extra: dict[str, Any] = {"rate": rate, "progress": i.astype(float) / steps}
            if data.seen is not None:
                extra["seen"] = jax.tree.map(lambda leaf: leaf[..., rows], data.seen)
            batch = Batch(data.x[rows], data.y[rows])
            model, state, loss = rule.step(model, state, batch, **extra)
            return model, state, wrong + (~jnp.isfinite(loss)).astype(int)

        start = (model, state, jnp.zeros((), int))
        return jax.lax.fori_loop(begin, end, body, start)

    @jax.jit
    def bound(model, data):
        """The evidence bound of all rows, a chunk at a time."""
        short = -total % min(CHUNK, total)
        fill = lambda leaf: jnp.concatenate([leaf, leaf[:1].repeat(short, axis=0)])
        cut = lambda leaf: leaf.reshape(-1, min(CHUNK, total), *leaf.shape[1:])
        weight = jnp.append(jnp.ones(total), jnp.zeros(short))
        rows = Batch(cut(fill(data.x)), cut(fill(data.y)), cut(weight))
        bounds = jax.lax.map(lambda batch: gp.elbo(model, batch), rows)
        return bounds.sum() + (len(bounds) - 1) * model.prior_kl()

    whole_rule = on_posterior(natgrad.guarded_ngd(1.0), num_data)

    @jax.jit
    def whole_step(model, state, data):
        return whole_rule.step(model, state, Batch(data.x, data.y), seen=data.seen)

    return Bench(
        fixed_rules(case, num_data),
        joint_rules(case, num_data),
        advance,
        bound,
        jax.jit(lambda model, x: model.project(x)),
        whole_rule,
        whole_step,
    )


def is_good(model: gp.SparseGP) -> bool:
    """Whether all is finite and q inside its family."""
    leaves = jax.tree.leaves(model)
    are_finite = all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
    return are_finite and bool(model.posterior.is_inside().all())


def guard_of(state: Any) -> GuardedState | None:
    is_guard = lambda node: isinstance(node, GuardedState)
    return next(filter(is_guard, jax.tree.leaves(state, is_leaf=is_guard)), None)


def curve(
    tools: Bench,
    pair: tuple[Rule, float],
    model: gp.SparseGP,
    data: Data,
    places: Any,
    steps: int,
) -> dict[str, Any]:
    """One run: the bound at every check, and what the guard counted."""
    rule, rate = pair
    began, begin, wrong = time.process_time(), 0, 0
    state, row = rule.init(model), {}
    for end in (check for check in CHECKS if check <= steps):
        model, state, new = tools.advance(
            rule, model, state, data, places, begin, end, rate, float(steps)
        )
        begin, wrong = end, wrong + int(new)
        row[f"elbo_{end}"] = float(tools.bound(model, data._replace(seen=None)))
        guard = guard_of(state)
        if guard is not None and end == 200:
            row["tests_200"] = int(guard.tests)
    guard = guard_of(state)
    if guard is not None:
        counts = {name: int(getattr(guard, name)) for name in bars_table.COUNTS}
        row |= counts
    row |= {"steps": begin, "is_good": int(is_good(model)), "not_finite": wrong}
    row["rate"] = rate
    row["cpu_seconds"] = round(time.process_time() - began, 2)
    return row


def whole(
    tools: Bench, model: gp.SparseGP, data: Data, most: int = MOST
) -> dict[str, Any]:
    """Guarded steps on all rows, until nothing is gained."""
    began = time.process_time()
    state, bounds, total = tools.whole_rule.init(model), [], len(data.y)
    gain = math.inf
    while len(bounds) <= most:
        model, state, loss = tools.whole_step(model, state, data)
        bounds.append(-float(loss))
        gain = (bounds[-1] - bounds[-6]) / total if len(bounds) > 5 else math.inf
        if gain <= TOLERANCE:
            break
    best = max(bounds)
    gaps = [(best - bound) / total for bound in bounds]
    first = lambda bar: next(i for i, gap in enumerate(gaps) if gap <= bar)
    return {
        "optimum": best,
        "gain_of_last_5": gain,
        "gap_1": gaps[1],
        "to_1e-3": first(1e-3),
        "to_1e-6": first(1e-6),
        "steps": len(bounds) - 1,
        "tests": int(state.tests),
        "refused": int(state.refused),
        "cpu_seconds": round(time.process_time() - began, 2),
    }


def runs(
    case: Case, seed: int, done: set, adams: tuple[str, ...] = ADAMS, only: str = ".*"
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """What is not done of a case and a split, and whether it is of all rows."""
    x, y = load(case, seed)
    with warnings.catch_warnings():
        # Some of the hostile sets have few distinct rows.
        warnings.simplefilter("ignore", InputWarning)
        fixed = model_of(case, case.scale, x, seed)
    likelihood = None
    if case.start is not None:
        likelihood = model_of(case, case.start, x[:1], seed).likelihood
    fixed.likelihood.check(y)
    tools, total = bench(case, len(y)), len(y)
    places = jnp.asarray(Arrays((x, y), ROWS, seed).places(0, max(CHECKS)))
    plain = Data(jnp.asarray(x), jnp.asarray(y))
    seen = plain._replace(seen=tools.project(fixed, plain.x))
    told = {"set": case.name, "likelihood": case.title, "kind": case.kind}
    told |= {"N": total, "M": len(fixed.inducing), "split": seed}
    if (*key_of(told), "whole", "") not in done:
        most = FEW if case.kind == "large" else MOST
        yield True, {**told, **whole(tools, fixed, seen, most)}
    for mode, rules in (("fixed", tools.fixed), ("joint", tools.joint)):
        if mode == "joint" and likelihood is None:
            continue
        for name, pair in rules.items():
            is_paper, is_one_of_many = name.startswith("paper"), name in adams
            if case.kind in ("hostile", "large"):
                is_one_of_many = name in adams[:1]
            is_wanted = bars_table.is_ours(name) or is_paper or is_one_of_many
            is_wanted &= re.fullmatch(only, f"{mode} {name}") is not None
            if not is_wanted or (*key_of(told), mode, name) in done:
                continue
            is_long = name == ("guarded" if mode == "fixed" else "default")
            steps = max(CHECKS) if is_long else SHORT
            model = fixed
            if mode == "joint":
                model = eqx.tree_at(lambda model: model.likelihood, fixed, likelihood)
            is_fast = mode == "fixed" and name != "guarded"
            data = seen if is_fast else plain
            row = curve(tools, pair, model, data, places, steps)
            yield False, {**told, "mode": mode, "method": name, **row}


def key_of(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["set"], row["likelihood"], str(row["split"])


# The whole


def append(row: dict[str, Any], path: Path, fields: tuple[str, ...]) -> None:
    path.parent.mkdir(exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", help="all, if none is named")
    parser.add_argument("--splits", nargs="*", type=int, default=list(range(SPLITS)))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--adams", nargs="*", default=list(ADAMS))
    parser.add_argument("--only", default=".*", help="modes and methods, a pattern")
    options = parser.parse_args()
    path, whole_path = RESULTS / "bars.csv", RESULTS / "bars_whole.csv"
    done = {(*key_of(row), "whole", "") for row in bars_table.read(whole_path)}
    for row in bars_table.read(path):
        done.add((*key_of(row), row["mode"], row["method"]))
    for seed in options.splits:
        for case in CASES:
            is_named = not options.sets or case.name in options.sets
            is_once = case.kind in ("hostile", "large")
            if not is_named or case.kind not in options.kinds or seed and is_once:
                continue
            adams, only = tuple(options.adams), options.only
            for is_whole, row in runs(case, seed, done, adams, only):
                where = (whole_path, WHOLE_FIELDS) if is_whole else (path, FIELDS)
                append(row, *where)
                print(time.strftime("%X"), *row.values(), flush=True)
    bars_table.main()


if __name__ == "__main__":
    main()
