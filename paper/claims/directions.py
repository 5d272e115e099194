"""Claims on directions: figure 2, all rows and the best step along each."""

from typing import Any

import numpy as np

from paper.claims.base import Claim, Found, Tables, each, found, spread


SOLVED = 1e-6
"""So near to the best bound of all, in nats, nothing is left to find."""

UNCONSTRAINED = ("natural", "mean/var")


def _searched(tables: Tables) -> Any:
    """With the gap to the best bound of a split, before and after each step."""
    table = tables["fig2"].sort_values(["run", "iteration"])
    best = table.groupby(["data", "split"]).bound.transform("max")
    table = table.assign(gap=best - table.bound)
    return table.assign(before=table.groupby("run").gap.shift())


def _steps(table: Any, method: str) -> Any:
    """The steps of a method until nothing was left to find."""
    return table[(table.method == method) & (table.before > SOLVED)]


def _iterations(table: Any) -> Any:
    """By run of NGD: how many iterations until nothing is left."""
    of_method = table[table.method == "NGD"]
    keys = ["data", "parameterization", "split"]
    unsolved = of_method[of_method.gap > SOLVED]
    return unsolved.groupby(keys).iteration.max() + 1


def conjugate(tables: Tables) -> Found:
    table = _searched(tables)
    is_case = (table.data == "energy") & (table.parameterization == "natural")
    first = table[is_case & (table.method == "NGD") & (table.iteration == 1)]
    text = f"{len(first)} splits: gap {first.gap.max():.0e} nats after one step of "
    text += f"{spread(first.step_size, '.6f')}"
    is_one = np.abs(first.step_size - 1).max() < 1e-3
    return found(text, is_one and first.gap.max() < SOLVED)


def elsewhere(tables: Tables) -> Found:
    iterations = _iterations(_searched(tables))["energy"]
    text = iterations.groupby("parameterization").median()
    others = text.drop("natural")
    return found(f"median iterations: {each(text, '.0f')}", others.min() > text.natural)


def first_steps(tables: Tables) -> Found:
    steps = _steps(_searched(tables), "NGD")
    is_conjugate = (steps.data == "energy") & (steps.parameterization == "natural")
    first = steps[(steps.iteration == 1) & ~is_conjugate]
    sizes = first.groupby(["parameterization", "data"]).step_size.median()
    text = f"median first size {spread(sizes)}; below 1 in {(sizes < 1).sum()} of "
    return found(f"{text}{len(sizes)} cases", (sizes < 1).all())


def grows_to_one(tables: Tables) -> Found:
    last = _steps(_searched(tables), "NGD").groupby("run").tail(1)
    near = (last.step_size > 0.5) & (last.step_size < 2)
    text = f"last step before nothing is left: within a factor 2 of 1 in {near.sum()} "
    text += f"of {len(near)} runs, median {last.step_size.median():.2f}"
    return found(text, near.mean() >= 0.9)


def rapid(tables: Tables) -> Found:
    counts = []
    for _, run in _steps(_searched(tables), "NGD").groupby("run"):
        is_long, is_solved = run.step_size > 0.5, run.gap.iloc[-1] <= SOLVED
        if is_long.any():
            first = run.iteration[is_long].min()
            counts.append(run.iteration.max() - first + 1 if is_solved else np.inf)
    text = f"iterations from the first size above 0.5 to a gap of {SOLVED:.0e} nats: "
    text += (
        f"median {np.median(counts):.0f}, most {max(counts):.0f} ({len(counts)} runs)"
    )
    return found(text, np.median(counts) <= 10)


def faster(tables: Tables) -> Found:
    table = _searched(tables)
    text, is_so = [], True
    for iteration in (5, 10, 50):
        keys = ["data", "parameterization", "split"]
        rows = table[table.iteration <= iteration].groupby([*keys, "method"]).tail(1)
        gaps = rows.pivot_table(index=keys, columns="method", values="gap")
        wins = (gaps.NGD < gaps.GD) & (gaps.Adam > gaps.NGD)
        lbfgs = gaps["L-BFGS"] > gaps.NGD
        text.append(
            f"after {iteration}: {wins.sum()} of {len(wins)} (L-BFGS too: "
            f"{(wins & lbfgs).sum()})"
        )
        is_so &= bool(wins.all()) if iteration > 5 else True
    return found("ahead of GD and Adam " + "; ".join(text), is_so)


def sizes_of_gd(tables: Tables) -> Found:
    steps = _steps(_searched(tables), "GD")
    sizes = steps.groupby(["parameterization", "data"]).step_size.median()
    ratio = (
        sizes.groupby("parameterization").max()
        / sizes.groupby("parameterization").min()
    )
    text = f"median size, largest by smallest likelihood: {each(ratio)}"
    return found(text, (ratio > 2).all())


def gd_decreases(tables: Tables) -> Found:
    steps = _steps(_searched(tables), "GD")
    early = steps[steps.iteration <= 3].groupby("run").step_size.median()
    late = steps[steps.iteration > 40].groupby("run").step_size.median()
    early = early.reindex(late.index)  # without runs that were over before
    names = steps.groupby("run").parameterization.first()
    falls = (late < early).groupby(names).mean()
    ratio = (late / early).groupby(names).median()
    text = (
        f"late by early size, median: {each(ratio)}; falls in {100 * falls.mean():.0f}"
    )
    return found(f"{text} % of the runs", falls.mean() > 0.5)


def sizes_of_adam(tables: Tables) -> Found:
    steps = _steps(_searched(tables), "Adam")
    sizes = steps.groupby("parameterization").step_size.median()
    sizes = sizes.drop(list(UNCONSTRAINED), errors="ignore")
    return found(f"median size: {each(sizes)}", sizes.between(0.03, 0.3).all())


def _ends(tables: Tables, method: str) -> Any:
    table = _searched(tables)
    last = table[table.method == method].groupby("run").tail(1)
    return last.groupby(["parameterization", "data"]).gap.median().unstack()


def adam_is_stuck(tables: Tables) -> Found:
    ends = _ends(tables, "Adam")
    ratio = ends.loc[list(UNCONSTRAINED)] / ends.loc["mean/var-sqrt"]
    text = "gap after 50 iterations by that in mean/var-sqrt: "
    text += "; ".join(f"{name}: {each(row)}" for name, row in ratio.iterrows())
    return found(text, (ratio > 10).all(axis=None))


def best_for_ngd(tables: Tables) -> Found:
    medians = _iterations(_searched(tables)).groupby(["parameterization", "data"])
    counts = medians.median().unstack()
    text = "iterations until nothing is left, by set: "
    text += "; ".join(f"{name} {spread(row, '.0f')}" for name, row in counts.iterrows())
    return found(text, (counts.loc["natural"] <= counts.min()).all())


def best_for_ordinary(tables: Tables) -> Found:
    text, is_so = [], True
    for method in ("GD", "Adam"):
        ends = _ends(tables, method)
        best = ends.idxmin()
        text.append(f"{method}: {', '.join(f'{k} {v}' for k, v in best.items())}")
        is_so &= bool((best == "mean/var-sqrt").all())
    return found(f"lowest gap after 50 iterations, {'; '.join(text)}", is_so)


CLAIMS = [
    Claim(
        "§5.1",
        "for the Gaussian likelihood the optimal solution is found in a single step of "
        "γ = 1 (natural)",
        "size 1 to 1e-3, and a gap below 1e-6 nats, in every split",
        ("fig2",),
        conjugate,
        is_quick=True,
    ),
    Claim(
        "§5.1",
        "elsewhere the initial natural step is a small value that depends on "
        "parameterization and likelihood",
        "median below 1 in every case",
        ("fig2",),
        first_steps,
    ),
    Claim(
        "§5.1",
        "for all parameterizations and likelihoods the best natural step increases to "
        "γ = 1",
        "the last step that gains anything is from 0.5 to 2 in 90 % of the runs",
        ("fig2",),
        grows_to_one,
    ),
    Claim(
        "§5.1",
        "once the step is near γ = 1, convergence is extremely rapid",
        "10 iterations or fewer, in the median",
        ("fig2",),
        rapid,
    ),
    Claim(
        "§5.1",
        "the natural direction converges faster for all likelihoods and "
        "parameterizations",
        "a smaller gap than GD's and Adam's after 10 and after 50, in all runs",
        ("fig2",),
        faster,
    ),
    Claim(
        "§5.1",
        "the step of the ordinary gradient differs between likelihoods",
        "by a factor of 2 in every parameterization",
        ("fig2",),
        sizes_of_gd,
    ),
    Claim(
        "§5.1",
        "the step of the ordinary gradient generally needs to decrease",
        "smaller after 40 iterations than in the first 3, in most runs",
        ("fig2",),
        gd_decreases,
    ),
    Claim(
        "§5.1",
        "for Adam a value close to 0.1 seems appropriate in the constrained "
        "parameterizations",
        "medians from 0.03 to 0.3",
        ("fig2",),
        sizes_of_adam,
    ),
    Claim(
        "§5.1",
        "in the unconstrained parameterizations Adam cannot make good progress",
        "a gap ten times that in mean/var-sqrt, on every set",
        ("fig2",),
        adam_is_stuck,
    ),
    Claim(
        "§5.1",
        "the best parameterization for NGD is natural",
        "fewest iterations on every set",
        ("fig2",),
        best_for_ngd,
    ),
    Claim(
        "§5.1",
        "the best parameterization for GD and Adam is mean/var-sqrt",
        "the smallest gap after 50 iterations on every set",
        ("fig2",),
        best_for_ordinary,
    ),
]
