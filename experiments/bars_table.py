"""The bars of the step size, read off the runs: see bars.py.

    python experiments/bars_table.py    # prints which runs failed

It writes the tables of results/bars.md too.
"""

import csv
import math
from pathlib import Path
from typing import Any


COUNTS = ("tests", "halvings", "refused")
CHECKS = (10, 50, 200, 1000, 5000)
RESOLUTION = 1e-9
"""Nats per row below which a gap is rounding or the optimum's own error."""

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
NAMED = dict.fromkeys(("energy", "boston", "pima"), "paper 5")
NAMED |= dict.fromkeys(("naval", "kin8nm", "power"), "paper 40")
"""The sets that the paper names, with the ramp that it gives for each."""

MULTIMODAL = ("three classes", "one class of three", "mnist")
"""Sets with more than one optimum: gaps are to the best seen, and not compared."""

Rows = list[dict[str, Any]]


def read(path: Path) -> Rows:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def number(row: dict[str, Any], field: str) -> float:
    return float(row[field]) if row.get(field) not in (None, "") else math.nan


def is_ours(method: str) -> bool:
    return method.startswith(("guarded", "default"))


def middle(values: list[float]) -> float:
    """The median, the worse of two; what is not a number is worse than all."""
    values = sorted(math.inf if math.isnan(value) else value for value in values)
    return values[len(values) // 2] if values else math.nan


class Runs:
    """All runs of a set and a likelihood."""

    def __init__(self, name: tuple[str, str], rows: Rows, whole: Rows):
        self.name, self.rows, self.whole = name, rows, whole
        self.set, self.kind = name[0], (whole or rows)[0]["kind"]
        self.total = int((whole or rows)[0]["N"])
        self.splits = sorted({int(row["split"]) for row in rows})
        self.best: dict[str, float] = {}
        bounds = [(row["split"], number(row, "optimum")) for row in whole]
        for row in self.of("fixed"):
            bounds += [(row["split"], number(row, f"elbo_{c}")) for c in CHECKS]
        for split, bound in bounds:
            if math.isfinite(bound):
                self.best[split] = max(bound, self.best.get(split, -math.inf))

    @property
    def title(self) -> str:
        name = " / ".join(self.name)
        return f"{name} ({self.total}; {len(self.splits)})"

    def of(self, mode: str, method: str | None = None) -> Rows:
        wanted = [row for row in self.rows if row["mode"] == mode]
        return [row for row in wanted if method is None or row["method"] == method]

    def methods(self, mode: str, start: str) -> list[str]:
        names = dict.fromkeys(row["method"] for row in self.of(mode))
        return [name for name in names if name.startswith(start)]

    def gap(self, row: dict[str, Any], check: int) -> float:
        best = self.best.get(row["split"], math.nan)
        gap = (best - number(row, f"elbo_{check}")) / self.total
        return max(gap, 0.0) if not math.isnan(gap) else gap

    def middle_gap(self, method: str, check: int) -> float:
        return middle([self.gap(row, check) for row in self.of("fixed", method)])

    def middle_bound(self, method: str, check: int) -> float:
        rows = self.of("joint", method)
        return -middle([-number(row, f"elbo_{check}") / self.total for row in rows])

    def is_failed(self, row: dict[str, Any]) -> bool:
        # A guarded step that is refused is no failure; a plain one has left the family.
        is_plain = not is_ours(row["method"])
        is_bad = row["is_good"] == "0" or (is_plain and int(row["not_finite"]) > 0)
        if row["mode"] == "joint" or row["method"].startswith("Adam"):
            return is_bad
        return is_bad or not self.gap(row, int(row["steps"])) <= 1

    def failures(self, mode: str, method: str) -> str:
        rows = self.of(mode, method)
        return f"{sum(map(self.is_failed, rows))}/{len(rows)}" if rows else ""

    def ratio(self, check: int, method: str) -> float:
        """The gap of the guarded runs in gaps of another method."""
        ours, theirs = self.middle_gap("guarded", check), self.middle_gap(method, check)
        if math.isinf(theirs):
            return 0.0
        return max(ours, RESOLUTION) / max(theirs, RESOLUTION)

    def best_adam(self, check: int) -> float:
        gaps = [self.middle_gap(name, check) for name in self.methods("fixed", "Adam")]
        return min(gaps, default=math.nan)

    def beside_adam(self, ours: int, theirs: int) -> float:
        gaps = self.middle_gap("guarded", ours), self.best_adam(theirs)
        return max(gaps[0], RESOLUTION) / max(gaps[1], RESOLUTION)

    def leads(self, check: int, ours: tuple, theirs: tuple) -> list[float]:
        """How far the best of ours is above the best of theirs, for each split."""

        def best(methods: tuple, split: int) -> float:
            rows = [row for name in methods for row in self.of("joint", name)]
            rows = [row for row in rows if int(row["split"]) == split]
            rows = [row for row in rows if not self.is_failed(row)]
            return max((number(row, f"elbo_{check}") for row in rows), default=math.nan)

        leads = [(best(ours, i) - best(theirs, i)) / self.total for i in self.splits]
        return sorted(lead for lead in leads if not math.isnan(lead))


def grouped(rows: Rows, whole: Rows) -> list[Runs]:
    name = lambda row: (row["set"], row["likelihood"])
    names = dict.fromkeys(name(row) for row in [*whole, *rows])
    pick = lambda rows, key: [row for row in rows if name(row) == key]
    return [Runs(key, pick(rows, key), pick(whole, key)) for key in names]


# Failures


def failed_runs(groups: list[Runs]) -> str:
    """Which runs failed, and where the guarded step is behind the paper's schedule."""
    is_named = lambda runs, row: row["method"] == NAMED.get(runs.set)
    is_guarded = lambda runs, row: is_ours(row["method"])
    is_paper = lambda runs, row: row["method"].startswith("paper")
    kinds = {
        "sets that the paper names, with its ramp for each": (
            lambda runs, row: is_guarded(runs, row) and runs.set in NAMED,
            is_named,
        ),
        "other sets and other ramps": (
            lambda runs, row: is_guarded(runs, row) and runs.set not in NAMED,
            lambda runs, row: is_paper(runs, row) and not is_named(runs, row),
        ),
        "all": (is_guarded, is_paper),
    }
    count = lambda found: f"{sum(failed for _, failed in found)} of {len(found)}"
    lines = [
        [kind, *(count(_failed(groups, is_one)) for is_one in both)]
        for kind, both in kinds.items()
    ]
    where: dict[str, int] = {}
    for runs, failed in _failed(groups, is_paper):
        where[runs.set] = where.get(runs.set, 0) + failed
    worst = sorted((name for name in where if where[name]), key=lambda n: -where[n])
    leads = sorted(_leads_of_guarded(groups, 1000))
    behind = [f"{-lead:.3f} on {name}" for lead, name in leads if lead < -0.005]
    return "\n".join(
        [
            table(["failed runs", "guarded", "the paper's schedule"], lines),
            f"The schedule failed on {', '.join(f'{n} {where[n]}' for n in worst)}.\n",
            "With trained hyperparameters the guarded step is behind the schedule by "
            "more than 0.005 nats per row at 1,000 steps on "
            f"{len(behind)} of {len(leads)}: {', '.join(behind)}.\n",
        ]
    )


def _failed(groups: list[Runs], is_one: Any) -> list[tuple[Runs, bool]]:
    return [
        (runs, runs.is_failed(row))
        for runs in groups
        for row in runs.rows
        if is_one(runs, row)
    ]


def _leads_of_guarded(groups: list[Runs], check: int) -> list[tuple[float, str]]:
    """The median lead over the paper's schedule on each set, both with Adam 0.01."""
    leads = [
        (runs.leads(check, ("guarded",), ("paper 5", "paper 40")), runs.name)
        for runs in groups
        if runs.kind != "hostile" and runs.of("joint", "guarded")
    ]
    middle_one = lambda found: found[(len(found) - 1) // 2]
    return [(middle_one(found), " ".join(name)) for found, name in leads if found]


# The bars


def bars(groups: list[Runs]) -> list[tuple[str, str, bool | None]]:
    """Each bar, what was found and whether it is met; None where it was not run."""
    with_paper = [
        runs
        for runs in groups
        if runs.kind != "hostile"
        and runs.set not in MULTIMODAL
        and runs.of("fixed", "guarded")
        and runs.methods("fixed", "paper")
    ]
    return [
        _no_failures(groups),
        _one_step(groups),
        _few_steps(groups),
        _beside_paper(with_paper, 10, 1, 0.75),
        *(_beside_paper(with_paper, *b) for b in ((50, 1), (200, 0.5), (1000, 0.1))),
        _beside_adam(with_paper),
        _naval(groups),
        *_joint(groups),
        _evaluations(groups, "fixed"),
        _evaluations(groups, "joint"),
    ]


def _no_failures(groups: list[Runs]) -> tuple[str, str, bool | None]:
    failed, total, names = 0, 0, []
    for runs in groups:
        for row in runs.rows:
            if is_ours(row["method"]):
                total += 1
                failed += runs.is_failed(row)
                if runs.is_failed(row):
                    names.append(f"{runs.title} {row['mode']} {row['split']}")
    paper = [
        runs.is_failed(row)
        for runs in groups
        for row in runs.rows
        if row["method"].startswith("paper")
    ]
    found = f"{failed} of {total}; the paper's schedule {sum(paper)} of {len(paper)}"
    found += "".join(f"; {name}" for name in names)
    return "1: failures of guarded runs, = 0", found, failed == 0


def _one_step(groups: list[Runs]) -> tuple[str, str, bool | None]:
    gaps = [
        number(row, "gap_1")
        for runs in groups
        for row in runs.whole
        if runs.name[1].startswith("Gaussian") and runs.kind == "paper"
    ]
    worst = max(gaps, default=math.nan)
    return (
        "2: Gaussian, all rows, gap after one step ≤ 1e-9",
        f"{worst:.1e}",
        worst <= 1e-9,
    )


def _few_steps(groups: list[Runs]) -> tuple[str, str, bool | None]:
    allowed = {
        ("pima", "Bernoulli"): 5,
        ("boston", "Student-t 1"): 8,
        ("boston", "Student-t 0.2"): 20,
        ("outliers", "Student-t 0.05"): 20,
    }
    found, is_met = [], True
    for runs in groups:
        if runs.name in allowed and runs.whole:
            most = max(int(row["to_1e-6"]) for row in runs.whole)
            found.append(f"{' '.join(runs.name)} {most} of {allowed[runs.name]}")
            is_met &= most <= allowed[runs.name]
    return "3: all rows, steps to a gap of 1e-6, worst split", "; ".join(found), is_met


def _worst(pairs: list[tuple[float, str]]) -> str:
    pairs = sorted(pairs, reverse=True)
    return ", ".join(f"{name} {value:.2g}" for value, name in pairs[:3])


def _beside_paper(groups: list[Runs], check: int, bar: float, share: float = 1.0):
    """Against each ramp that was run, the paper's own and a quicker one."""
    pairs = [
        (runs.ratio(check, name), " ".join((*runs.name, name)))
        for runs in groups
        for name in runs.methods("fixed", "paper")
    ]
    met = sum(value <= bar for value, _ in pairs)
    found = f"{met} of {len(pairs)}; largest: {_worst(pairs)}"
    title = f"4: gap ≤ {bar:g} of the paper's at {check}, on {share:.0%}"
    return title, found, met >= share * len(pairs)


def _beside_adam(groups: list[Runs]):
    pairs = [(runs.beside_adam(50, 200), " ".join(runs.name)) for runs in groups]
    met = sum(value < 1 for value, _ in pairs)
    found = f"{met} of {len(pairs)}; largest: {_worst(pairs)}"
    return "5: gap at 50 < best Adam's at 200", found, met == len(pairs)


def _naval(groups: list[Runs]):
    found, is_met = [], True
    for runs in groups:
        if runs.set == "naval" and runs.of("fixed", "guarded"):
            ours, adam = runs.middle_gap("guarded", 1000), runs.best_adam(1000)
            found.append(f"{runs.name[1]} {ours:.1e}, Adam {adam:.1e}")
            is_met &= ours <= 5e-5
    return "6: naval, gap at 1000 ≤ 5e-5 (Adam ≥ 2e-3)", "; ".join(found), is_met


def _joint(groups: list[Runs]):
    both = [
        runs
        for runs in groups
        if runs.kind != "hostile" and runs.of("joint", "guarded")
    ]

    def line(what: str, check: int, least: float, ours: tuple, theirs: tuple):
        pairs = []
        for runs in both:
            leads = runs.leads(check, ours, theirs)
            if leads:
                middle_one = leads[(len(leads) - 1) // 2]
                pairs.append((middle_one, leads[0], " ".join(runs.name)))
        met = sum(lead >= least for lead, _, _ in pairs)
        told = [f"{name} {lead:+.4f}" for lead, _, name in sorted(pairs)[:3]]
        worst = min((worst for _, worst, _ in pairs), default=math.nan)
        found = f"{met} of {len(pairs)}; least: {', '.join(told)}; split {worst:+.4f}"
        return f"7: {what} ≥ {least:g} at {check}", found, met == len(pairs)

    guarded, adams = (
        ("guarded", "guarded, 0.1"),
        ("Adam 0.1", "Adam 0.01", "Adam 0.001"),
    )
    papers = ("paper 5", "paper 40")
    return [
        line("guarded − paper, both with Adam 0.01", 10, 0.0, guarded[:1], papers),
        line("guarded − paper, both with Adam 0.01", 50, 0.0, guarded[:1], papers),
        line("guarded − paper, both with Adam 0.01", 1000, -0.005, guarded[:1], papers),
        *(
            line(
                "guarded with Adam 0.01 − Adam 0.01",
                check,
                0.0,
                guarded[:1],
                adams[1:2],
            )
            for check in CHECKS[:-1]
        ),
        *(
            line(
                "guarded with the best Adam − the best Adam", check, 0.0, guarded, adams
            )
            for check in CHECKS[:-1]
        ),
    ]


def _evaluations(groups: list[Runs], mode: str):
    pairs = []
    for runs in groups:
        for row in runs.of(mode):
            if is_ours(row["method"]):
                for field, steps in (("tests_200", 200), ("tests", int(row["steps"]))):
                    mean = 1 + number(row, field) / steps
                    name = f"{' '.join(runs.name)} {row['method']} to {steps}:"
                    pairs.append((mean, name))
    worst = max((value for value, _ in pairs), default=math.nan)
    return f"8: evaluations per step ≤ 2.1, {mode}", _worst(pairs), worst <= 2.1


# Tables


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def shown(value: float, form: str = ".1e") -> str:
    return (
        "" if math.isnan(value) else "–" if math.isinf(value) else format(value, form)
    )


def fixed_table(groups: list[Runs]) -> str:
    head = ["set / likelihood (N; splits)", "rule", "failed", *map(str, CHECKS)]
    head += [
        "of the paper's at 10, 50, 200, 1000",
        "of best Adam's at 1000",
        "eval./step",
    ]
    lines = []
    for runs in groups:
        papers = runs.methods("fixed", "paper")
        for method in ["guarded", *papers, *runs.methods("fixed", "Adam")]:
            rows = runs.of("fixed", method)
            if not rows:
                continue
            cells = [runs.title if method == "guarded" else "", method]
            cells.append(runs.failures("fixed", method))
            cells += [shown(runs.middle_gap(method, check)) for check in CHECKS]
            if method == "guarded":
                checks = (10, 50, 200, 1000)
                ratios = [
                    ", ".join(shown(runs.ratio(check, name), ".2g") for check in checks)
                    for name in papers
                ]
                told = ["; ".join(ratios), shown(runs.beside_adam(1000, 1000), ".2g")]
                tests = middle([number(row, "tests") for row in rows])
                cells += ["", ""] if runs.set in MULTIMODAL else told
                cells.append(f"{1 + tests / int(rows[0]['steps']):.2f}")
            else:
                cells += ["", "", ""]
            lines.append(cells)
    return table(head, lines)


def joint_table(groups: list[Runs]) -> str:
    head = ["set / likelihood (N; splits)", "rule", "failed", *map(str, CHECKS)]
    lines = []
    for runs in groups:
        methods = dict.fromkeys(row["method"] for row in runs.of("joint"))
        for place, method in enumerate(methods):
            cells = [runs.title if place == 0 else "", method]
            cells.append(runs.failures("joint", method))
            cells += [shown(runs.middle_bound(method, c), ".4f") for c in CHECKS]
            lines.append(cells)
    return table(head, lines)


def whole_table(groups: list[Runs]) -> str:
    head = ["set / likelihood (N; splits)", "gap after one", "to 1e-3", "to 1e-6"]
    head += ["evaluations per step", "gain of the last 5"]
    lines = []
    for runs in groups:
        worst = lambda field, runs=runs: max(number(row, field) for row in runs.whole)
        if runs.whole:
            tests = [
                1 + number(r, "tests") / max(1, int(r["steps"])) for r in runs.whole
            ]
            cells = [runs.title, shown(worst("gap_1")), f"{worst('to_1e-3'):g}"]
            cells += [f"{worst('to_1e-6'):g}", f"{max(tests):.2f}"]
            lines.append([*cells, shown(worst("gain_of_last_5"))])
    return table(head, lines)


def markdown(rows: Rows, whole: Rows) -> str:
    groups = grouped(rows, whole)
    word = {True: "met", False: "**missed**", None: "not run"}
    summary = [[name, found, word[is_met]] for name, found, is_met in bars(groups)]
    return "\n".join(
        [
            failed_runs(groups),
            table(["bar", "found", ""], summary),
            "### Hyperparameters fixed: gap in nats per row\n",
            fixed_table(groups),
            "### Hyperparameters trained: ELBO in nats per row\n",
            joint_table(groups),
            "### All rows in every step, worst split\n",
            whole_table(groups),
        ]
    )


def main() -> None:
    rows, whole = read(RESULTS / "bars.csv"), read(RESULTS / "bars_whole.csv")
    page = (RESULTS / "bars.md").read_text()
    head, tail = page.index(BEGIN) + len(BEGIN), page.index(END)
    text = f"{page[:head]}\n\n{markdown(rows, whole)}\n{page[tail:]}"
    (RESULTS / "bars.md").write_text(text)
    print(failed_runs(grouped(rows, whole)), end="")


if __name__ == "__main__":
    main()
