"""The tables of docs/results/numpyro.md, made from the results of numpyro_models.py.

python benchmarks/numpyro_models.py table
"""

import csv
import math
import re
from pathlib import Path
from typing import NamedTuple


RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "numpyro.md"
NEAR = 0.1
"""Nats from the best known ELBO at which a run has converged."""

METHODS = {
    "natgrad": "natgrad",
    "AutoMultivariateNormal": "full, Adam",
    "AutoLowRankMultivariateNormal": "low rank, Adam",
    "AutoDiagonalNormal": "diagonal, Adam",
}


class Reached(NamedTuple):
    """Where a method converged first, or how far its best run stayed from it."""

    step: int | None
    cpu: float
    gap: float
    compile: float


def read(name: str) -> list[dict[str, str]]:
    path = RESULTS / f"numpyro_{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def best_known(rows: list[dict[str, str]], model: str) -> float:
    return max(float(r["elbo"]) for r in rows if r["model"] == model)


def reached(rows: list[dict[str, str]], model: str, method: str) -> Reached | None:
    """That of the best of a method's runs: the one of the fewest steps."""
    ours = [r for r in rows if (r["model"], r["method"]) == (model, method)]
    if not ours:
        return None
    best = best_known(rows, model)
    found = [r for r in ours if float(r["elbo"]) >= best - NEAR]
    if not found:
        gap = best - max(float(r["elbo"]) for r in ours)
        return Reached(None, 0.0, gap, float(ours[0]["compile"]))
    first = min(found, key=lambda r: int(r["step"]))
    cpu, seconds = float(first["cpu"]), float(first["compile"])
    return Reached(int(first["step"]), cpu, 0.0, seconds)


def cell(found: Reached | None) -> str:
    if found is None:
        return "not run"
    if found.step is None:
        return f"{found.gap:.1f} short"
    return f"{found.step:,} / {found.cpu:.2f}"


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def models(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(r["model"] for r in rows))


def steps_table(rows: list[dict[str, str]]) -> str:
    methods = [m for m in METHODS if any(r["method"] == m for r in rows)]
    head = ["model", "latents", *(METHODS[m] for m in methods)]
    lines = [line(head), line(["---"] * len(head))]
    for model in models(rows):
        latents = next(r["latents"] for r in rows if r["model"] == model)
        cells = [cell(reached(rows, model, method)) for method in methods]
        lines.append(line([model.replace("_", " "), latents, *cells]))
    return "\n".join(lines)


def checks_table(checks: list[dict[str, str]]) -> str:
    head = ["model", "steps", "k-hat", "largest error of a mean", "ratio of deviations"]
    lines = [line(head), line(["---"] * len(head))]
    for row in checks:
        name = row["model"].replace("_", " ")
        cells = [row[key] for key in ("steps", "khat", "mean_error", "sd_ratio")]
        lines.append(line([name, *cells]))
    return "\n".join(lines)


def minibatch_table(rows: list[dict[str, str]]) -> str:
    """CPU seconds and steps until 0.1 nats per 1,000 rows from the best, by run."""
    value = lambda row: float(row["elbo_per_1000_rows"])
    best = max(value(row) for row in rows if math.isfinite(value(row)))
    lines = [line(["method", "CPU seconds", "steps", "short at the end"])]
    lines.append(line(["---"] * 4))
    for key in dict.fromkeys((row["method"], row["rate"]) for row in rows):
        own = [row for row in rows if (row["method"], row["rate"]) == key]
        found = next((row for row in own if value(row) >= best - NEAR), None)
        title = METHODS[key[0]] + (f", rate {key[1]}" if key[1] else "")
        gap = best - value(own[-1])
        gap = f"{gap:.2f}" if math.isfinite(gap) else "diverged"
        if found is None:
            lines.append(line([title, "not reached", own[-1]["step"], gap]))
        else:
            seconds = f"{float(found['cpu']):.0f}"
            lines.append(line([title, seconds, found["step"], gap]))
    return "\n".join(lines)


def standing(rows: list[dict[str, str]], rival: str) -> tuple[int, int, int]:
    """On how many models natgrad needs fewer steps, and less time, than a rival.

    A rival that does not converge needs more of both. A model counts only if the rival
    was run on it, and natgrad has to converge.
    """
    fewer = faster = number = 0
    for model in models(rows):
        ours, theirs = (reached(rows, model, m) for m in ("natgrad", rival))
        if ours is None or theirs is None:
            continue
        number += 1
        if ours.step is not None:
            fewer += theirs.step is None or ours.step < theirs.step
            faster += theirs.step is None or ours.cpu < theirs.cpu
    return fewer, faster, number


def text() -> str:
    rows, checks, minibatch = read("runs"), read("checks"), read("minibatch")
    counts = []
    for rival in list(METHODS)[1:]:
        fewer, faster, number = standing(rows, rival)
        title = METHODS[rival]
        counts.append(
            f"{title}: fewer steps {fewer}/{number}, less time {faster}/{number}"
        )
    parts = [
        steps_table(rows),
        "\n".join(counts),
        checks_table(checks),
        minibatch_table(minibatch),
    ]
    return "\n\n".join(parts)


def filled(page: str, name: str, content: str) -> str:
    """The page with a block of it replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", page)


def written(page: str) -> str:
    """The page with the tables of the results."""
    page = filled(page, "steps", steps_table(read("runs")))
    page = filled(page, "checks", checks_table(read("checks")))
    return filled(page, "minibatches", minibatch_table(read("minibatch")))


def write_page() -> None:
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
