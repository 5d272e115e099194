"""The runs of compare.py as tables, with what is best and what is as good."""

import csv
from pathlib import Path

import numpy as np


RESULTS = Path(__file__).parent / "results" / "compare.csv"
DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "comparison.md"
FIELDS = ("set", "method", "split", "rows", "log_likelihood", "error", "calibration")
FIELDS += ("seconds", "cpu_seconds", "note")
TITLES = {
    "natgrad": "natgrad",
    "exact-gp": "scikit-learn GP",
    "boosting": "HistGradientBoosting",
    "linear": "linear",
    "gpytorch": "GPyTorch SVGP",
    "gpflow": "GPflow SVGP",
    "ngboost": "NGBoost",
}
FIGURES = {
    "log_likelihood": "Mean test log-likelihood, in nats (higher is better)",
    "error": "RMSE, or for classes the error rate (lower is better)",
    "calibration": "Calibration error (lower is better)",
    "cpu_seconds": "Seconds, to fit and predict (lower is better)",
}

Rows = list[dict[str, str]]


def read() -> Rows:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def values(rows: Rows, name: str, method: str, figure: str) -> dict[int, float]:
    """The figure of each split."""
    return {
        int(row["split"]): float(row[figure])
        for row in rows
        if row["set"] == name and row["method"] == method and row[figure]
    }


def lead(ours: dict[int, float], theirs: dict[int, float]) -> tuple[float, float]:
    """Mean and standard error of the difference on the splits that both have.

    One split has no standard error, and counts as sure.
    """
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return np.nan, np.nan
    differences = np.array([ours[i] - theirs[i] for i in common])
    if len(common) == 1:
        return differences[0], 0.0
    return differences.mean(), differences.std(ddof=1) / np.sqrt(len(common))


def standing(rows: Rows, name: str, figure: str) -> tuple[str, list[str]]:
    """The best method, and those within one standard error of it.

    Methods are ranked by their lead over natgrad on the splits they share with it.
    """
    sign = 1 if figure == "log_likelihood" else -1
    found = {method: values(rows, name, method, figure) for method in TITLES}
    found = {
        method: {split: sign * value for split, value in of_splits.items()}
        for method, of_splits in found.items()
        if of_splits
    }
    leads = {method: lead(found[method], found["natgrad"])[0] for method in found}
    leads = {method: value for method, value in leads.items() if np.isfinite(value)}
    best = max(leads, key=lambda method: leads[method])
    gaps = {method: lead(found[best], found[method]) for method in leads}
    near = [method for method, (gap, error) in gaps.items() if gap <= error]
    return best, [method for method in near if method != best]


def cell(rows: Rows, name: str, method: str, figure: str) -> str:
    # Splits differ by more than methods do: all means are over those of natgrad.
    ours = values(rows, name, "natgrad", figure)
    given = values(rows, name, method, figure)
    found = [given[split] for split in given if split in ours]
    if not found:
        notes = [
            row["note"]
            for row in rows
            if row["set"] == name and row["method"] == method
        ]
        return notes[0].split(":")[0] if notes else "–"
    mean = np.mean(found)
    if figure == "cpu_seconds":
        return f"{mean:.0f}" if mean >= 10 else f"{mean:.1f}"
    text = f"{mean:#.3g}" if abs(mean) < 100 else f"{mean:.0f}"
    if figure == "log_likelihood":
        text = f"{mean:.3f}"
        if len(found) > 1:
            text += f" ± {np.std(found, ddof=1) / np.sqrt(len(found)):.3f}"
    return text


def splits(rows: Rows, name: str) -> str:
    """How many natgrad has, and the fewest that a method shares with it."""
    ours = values(rows, name, "natgrad", "log_likelihood")
    found = [values(rows, name, method, "log_likelihood") for method in TITLES]
    fewest = min(len(ours.keys() & given.keys()) for given in found if given)
    return f"{len(ours)}" if fewest == len(ours) else f"{fewest} to {len(ours)}"


def table(rows: Rows, names: list[str], figure: str) -> str:
    heads = ["set", *TITLES.values(), *(["splits"] if "log" in figure else [])]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in names:
        best, near = standing(rows, name, figure)
        cells = [name]
        for method in TITLES:
            text = cell(rows, name, method, figure)
            is_marked = figure != "cpu_seconds"
            if is_marked and method == best:
                text = f"**{text}**"
            elif is_marked and method in near:
                text = f"*{text}*"
            cells.append(text)
        if "log" in figure:
            cells.append(splits(rows, name))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def variants(rows: Rows) -> str:
    """Runs with options beside those without, on the same splits."""
    lines = [
        "| set | method | log-likelihood | by default | error | by default | seconds |"
        " by default | splits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    pairs = dict.fromkeys((row["set"], row["method"]) for row in rows)
    for name, method in pairs:
        if method in TITLES:
            continue
        cells, shared = [name, method], []
        for figure in ("log_likelihood", "error", "cpu_seconds"):
            given = values(rows, name, method, figure)
            plain = values(rows, name, method.split()[0], figure)
            shared = sorted(given.keys() & plain.keys())
            for found in (given, plain):
                some = [found[split] for split in shared] or [np.nan]
                cells.append(f"{np.mean(some):.4g}")
        lines.append("| " + " | ".join([*cells, str(len(shared))]) + " |")
    return "\n".join(lines) + "\n"


def failures(rows: Rows) -> str:
    lines = [
        f"- {row['set']}, {TITLES.get(row['method'], row['method'])}, split "
        f"{row['split']}: {row['note']}\n"
        for row in rows
        if not row["log_likelihood"]
    ]
    return "".join(lines) or "None.\n"


def is_near_by_its_own_error(rows: Rows, name: str) -> bool:
    """Whether natgrad's mean is within one standard error of the mean of the best."""
    best, _ = standing(rows, name, "log_likelihood")
    ours = values(rows, name, "natgrad", "log_likelihood")
    theirs = values(rows, name, best, "log_likelihood")
    given = np.array([theirs[split] for split in theirs if split in ours])
    error = given.std(ddof=1) / np.sqrt(len(given)) if len(given) > 1 else 0.0
    return lead(theirs, ours)[0] <= error


def text(sets: list[str]) -> str:
    rows = read()
    names = [name for name in sets if values(rows, name, "natgrad", "log_likelihood")]
    good, own = [], []
    for name in names:
        best, near = standing(rows, name, "log_likelihood")
        if "natgrad" in (best, *near):
            good.append(name)
        elif is_near_by_its_own_error(rows, name):
            own.append(name)
    parts = [
        f"natgrad has the best test log-likelihood, or one within a standard error of "
        f"the best, on {len(good) + len(own)} of {len(sets)} sets: on {len(good)} by "
        f"the error of the difference ({', '.join(good)}), on {len(own)} more by the "
        f"error of the best itself, which is larger ({', '.join(own) or 'none'}).\n"
    ]
    for figure, title in FIGURES.items():
        parts.append(f"### {title}\n\n{table(rows, names, figure)}")
    parts.append(f"### Runs without a result\n\n{failures(rows)}")
    parts.append(f"### With options\n\n{variants(rows)}")
    return "\n".join(parts)


def write(sets: list[str]) -> None:
    """Fills the tables in results and in the docs."""
    filled = text(sets)
    RESULTS.with_suffix(".md").write_text(filled)
    begin, end = "<!-- tables -->\n", "<!-- end of tables -->\n"
    before, rest = DOCUMENT.read_text().split(begin)
    DOCUMENT.write_text(f"{before}{begin}\n{filled}\n{end}{rest.split(end)[1]}")
    print(filled)
