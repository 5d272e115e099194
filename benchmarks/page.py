"""Fills docs/results/benchmarks.md and draws its figures from the committed results.

It also writes results/tables.md, which has more tables. On the page, text between
`<!-- name -->` and `<!-- end of name -->` is written here; the rest is not touched.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optimisers
import steps
import tables


DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "results" / "benchmarks.md"
APPENDIX = Path(__file__).parent / "results" / "tables.md"
FIGURES = DOCS / "figures"
SCORES = {
    "log_density": "Log density of held-out rows, nats (higher is better)",
    "error": "RMSE, or for classes the error rate (lower is better)",
    "calibration": "Calibration error (lower is better)",
    "coverage_50": "Share of held-out rows inside the central 50 % interval",
    "coverage_90": "Share of held-out rows inside the central 90 % interval",
    "cpu_seconds": "CPU seconds of a first fit, with its predictions",
    "warm_cpu_seconds": "CPU seconds of a second fit in the same process",
    "seconds": "Wall-clock seconds of a first fit, on a busy machine",
}
NOT_RUN = "Not run yet."
OURS = "natgrad"
CURVES = (
    "![Held-out log density over CPU seconds of training]"
    "(../figures/benchmark_optimisers.png)"
)
STEPS = (
    "![Time, compilation and memory of a step by the number of inducing inputs]"
    "(../figures/benchmark_steps.png)"
)
ALWAYS = ("natgrad", "boosting", "lightgbm", "linear")
"""The methods whose splits count; others may have fewer, and are then not ranked."""

TREES = ("lightgbm", "boosting")
PANELS = {
    "against Gaussian process libraries": ("exact-gp", "gpytorch", "gpflow", "gpjax"),
    "against trees and linear models": ("boosting", "lightgbm", "ngboost", "linear"),
}

Rows = list[dict[str, str]]


# Tables


class Standing(NamedTuple):
    """How methods stand on one set, on the splits that all of them have."""

    splits: list[int]
    means: dict[str, float]
    best: str
    gaps: dict[str, tuple[float, float]]
    """How far each is behind the best, and the standard error of that."""


def of_set(rows: Rows, name: str) -> dict[str, dict[int, dict[str, str]]]:
    """The runs of a set, by method and split."""
    found: dict[str, dict[int, dict[str, str]]] = {}
    for row in rows:
        if row["set"] == name:
            found.setdefault(row["method"], {})[int(row["split"])] = row
    return found


def shared_splits(found: dict[str, dict[int, dict[str, str]]]) -> list[int]:
    """Those on which natgrad and all point-predicting rivals were run."""
    if not all(method in found for method in ALWAYS):
        return []
    return sorted(set.intersection(*(set(found[method]) for method in ALWAYS)))


def standing(rows: Rows, name: str, score: str = "log_density") -> Standing | None:
    """Of the methods that were run on the same splits; None if there is none."""
    found = of_set(rows, name)
    splits = shared_splits(found)
    sign = 1 if score == "log_density" else -1
    values = {
        method: np.array([sign * float(runs[i][score]) for i in splits])
        for method, runs in found.items()
        if splits and all(i in runs and runs[i][score] for i in splits)
    }
    if not values:
        return None
    best = max(values, key=lambda method: values[method].mean())
    gaps = {}
    for method, given in values.items():
        gap = values[best] - given
        spread = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0.0
        gaps[method] = (float(gap.mean()), float(spread))
    means = {method: float(sign * given.mean()) for method, given in values.items()}
    return Standing(splits, means, best, gaps)


def overtaking(rows: Rows, name: str) -> list[str]:
    """Methods with fewer splits that beat natgrad on those they have."""
    found, it = of_set(rows, name), standing(rows, name)
    assert it is not None
    ahead = []
    for method, runs in found.items():
        pairs = [
            float(run["log_density"]) - float(own["log_density"])
            for split, run in runs.items()
            if (own := found["natgrad"].get(split))
            and run["log_density"]
            and own["log_density"]
        ]
        if method not in it.means and pairs and np.mean(pairs) > 0:
            ahead.append(method)
    return ahead


def is_near(it: Standing, method: str) -> bool:
    """Best, or within one standard error of the difference to the best."""
    if method not in it.gaps:
        return False
    gap, error = it.gaps[method]
    return method == it.best or gap <= error


def methods_of(rows: Rows) -> list[str]:
    return [m for m in tables.ENVIRONMENTS if any(row["method"] == m for row in rows)]


def number(value: float, score: str) -> str:
    if np.isnan(value):
        return "–"
    if score == "log_density":
        return f"{value:.3f}"
    if score.startswith("coverage"):
        return f"{100 * value:.0f} %"
    if "seconds" in score:
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
    return f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}"


def cell(rows: Rows, name: str, method: str, score: str, splits: list[int]) -> str:
    runs = of_set(rows, name).get(method)
    if runs is None:
        return "–"
    if score == "warm_cpu_seconds":
        found = [float(run[score]) for run in runs.values() if run[score]]
        return number(float(np.mean(found)), score) if found else "–"
    taken = [runs[i] for i in splits if i in runs]
    if not taken:
        return "–"
    failed = [run for run in taken if not run["log_density"]]
    if failed:
        what = "over time" if failed[0]["note"].startswith("over") else "failed"
        return f"{what} {len(failed)}/{len(taken)}"
    if not all(run[score] for run in taken):
        return "–"
    text = number(float(np.mean([float(run[score]) for run in taken])), score)
    return text if len(taken) == len(splits) else f"{text} ({len(taken)})"


def markdown(heads: list[str], lines: list[list[str]]) -> str:
    text = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*text, *("| " + " | ".join(line) + " |" for line in lines)])


def table(rows: Rows, score: str, names: Iterable[str] = tables.SETS) -> str:
    names = list(names)
    methods = methods_of([row for row in rows if row["set"] in names])
    heads = ["set", *(tables.TITLES[m] for m in methods), "splits"]
    is_ranked = score in ("log_density", "error", "calibration")
    lines = []
    for name in names:
        it = standing(rows, name)
        if it is None:
            continue
        ranked = standing(rows, name, score) if is_ranked else None
        line = [name]
        for method in methods:
            text = cell(rows, name, method, score, it.splits)
            if ranked is not None and method == ranked.best:
                text = f"**{text}**"
            elif ranked is not None and is_near(ranked, method):
                text = f"*{text}*"
            line.append(text)
        lines.append([*line, f"{len(it.splits)} of {len(tables.ALL[name].splits)}"])
    return markdown(heads, lines)


def counted(rows: Rows) -> dict[str, list[str]]:
    """On which sets natgrad is best, near the best, and worse."""
    kinds = ("best", "near", "worse", "unsure", "open")
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for name in tables.SETS:
        it = standing(rows, name)
        if it is None or "natgrad" not in it.means:
            found["open"].append(name)
        elif overtaking(rows, name) and is_near(it, "natgrad"):
            found["unsure"].append(name)
        elif it.best == "natgrad":
            found["best"].append(name)
        else:
            found["near" if is_near(it, "natgrad") else "worse"].append(name)
    return found


def failures(rows: Rows, method: str) -> tuple[int, int]:
    """Runs without a result, and all runs."""
    is_own = lambda row: row["method"] == method and row["set"] in tables.SETS
    own = [row for row in rows if is_own(row)]
    return sum(not row["log_density"] for row in own), len(own)


def summary(rows: Rows) -> str:
    """One line per method: how often it is best, its calibration, time, failures."""
    heads = ["method", "best", "best or within 1 s.e.", "calibration error"]
    heads += ["inside 50 %", "inside 90 %", "CPU s, first fit", "second fit"]
    heads += ["failed or over time"]
    lines = []
    names = [name for name in tables.SETS if standing(rows, name)]
    for method in methods_of(rows):
        places = [standing(rows, name) for name in names]
        had = [it for it in places if it and method in it.gaps]
        best = sum(it.best == method for it in had)
        near = sum(is_near(it, method) for it in had)
        middle = lambda score, method=method: (
            np.median(found) if (found := means(rows, method, score)) else np.nan
        )
        failed, total = failures(rows, method)
        lines.append(
            [
                tables.TITLES[method],
                f"{best} of {len(had)}",
                f"{near} of {len(had)}",
                f"{middle('calibration'):.3f}",
                number(float(middle("coverage_50")), "coverage"),
                number(float(middle("coverage_90")), "coverage"),
                number(float(middle("cpu_seconds")), "seconds"),
                number(float(middle("warm_cpu_seconds")), "seconds"),
                f"{failed} of {total}",
            ]
        )
    return markdown(heads, lines)


def means(rows: Rows, method: str, score: str) -> list[float]:
    """The mean of a score on each set that a method has."""
    found = []
    for name in tables.SETS:
        runs = of_set(rows, name).get(method, {})
        values = [float(run[score]) for run in runs.values() if run[score]]
        if values:
            found.append(float(np.mean(values)))
    return found


def listed(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def verdict_on_tables(rows: Rows) -> str:
    found = counted(rows)
    good, seen = found["best"] + found["near"], 13 - len(found["open"])
    failed, total = failures(rows, "natgrad")
    text = (
        "**Tables.** natgrad has the best held-out log density on "
        f"{len(found['best'])} of {seen} data sets, and one within a standard error "
        "of the best on "
        f"{len(found['near'])} more: {len(good)} of {seen} in all. "
        f"It is behind on {listed(found['worse']) or 'none'}. "
        f"{failed} of its {total} runs failed."
    )
    for name in tables.DISTINCT:
        whole, it = name.partition(",")[0], standing(rows, name)
        if it and is_near(it, OURS) and whole in found["worse"]:
            is_what = (
                "best" if it.best == OURS else "within a standard error of the best"
            )
            text += (
                f" Without rows that repeat others it is {is_what} on {whole} too, "
                f"which makes {len(good) + 1} of {seen} "
                "([copies](../../benchmarks/results/tables.md#rows-that-repeat-others))."
            )
    if found["unsure"]:
        text += (
            f" On {listed(found['unsure'])} a method with fewer splits is ahead of it "
            "on those, and natgrad is not counted."
        )
    if found["open"]:
        text += f" Still open: {listed(found['open'])}."
    places = {name: standing(rows, name) for name in tables.SETS}
    single = [name for name, it in places.items() if it and len(it.splits) == 1]
    if single:
        text += (
            f" Only one split was run of {listed(single)}, and there only the best "
            "counts."
        )
    wins = {
        method: sum(it.best == method for it in places.values() if it)
        for method in methods_of(rows)
        if method != "natgrad"
    }
    most = max(wins.values(), default=0)
    rivals = [method for method in wins if wins[method] == most > 0]
    if not rivals:
        return text
    time = lambda method: number(
        float(np.median(means(rows, method, "cpu_seconds"))), "seconds"
    )
    verb = "are" if len(rivals) > 1 else "is"
    return (
        f"{text}\n\nThe strongest {'rivals' if len(rivals) > 1 else 'rival'} {verb} "
        f"{listed([tables.TITLES[method] for method in rivals])}, best on {most} data "
        f"sets{' each' if len(rivals) > 1 else ''}. The median first fit takes "
        f"{listed([time(method) for method in rivals])} CPU seconds, natgrad's "
        f"{time(OURS)}."
    )


def verdict_on_calibration(rows: Rows) -> str:
    """How many targets the bands hold, and where trees have the smaller error."""
    share = lambda method, level: number(
        float(np.median(means(rows, method, f"coverage_{level}"))), "coverage"
    )
    trees = [
        f"{share(method, 50)} and {share(method, 90)} for {tables.TITLES[method]}"
        for method in TREES
    ]
    counts = [
        f"than that of {tables.TITLES[method]} on {len(worse)} of {total}"
        for method in TREES
        for worse, total in [worse_calibrated(rows, method)]
    ]
    own = lambda level: means(rows, OURS, f"coverage_{level}")
    reach = lambda level: (
        f"{100 * min(own(level)):.0f} to {number(max(own(level)), 'coverage')}"
    )
    return (
        f"**Calibration.** On {len(own(50))} data sets with numbers as targets, "
        f"natgrad's 50 % bands hold {share(OURS, 50)} of the held-out targets in the "
        f"median ({reach(50)}), and its 90 % bands {share(OURS, 90)} ({reach(90)}). "
        f"The medians are {listed(trees)}. natgrad's calibration error is larger "
        f"{listed(counts)} data sets."
    )


def worse_calibrated(rows: Rows, method: str) -> tuple[list[str], int]:
    """On which data sets natgrad's calibration error is larger, and of how many."""
    places = {name: standing(rows, name, "calibration") for name in tables.SETS}
    known = {
        name: it.means
        for name, it in places.items()
        if it and OURS in it.means and method in it.means
    }
    worse = [name for name, mean in known.items() if mean[OURS] > mean[method]]
    return worse, len(known)


def losses(rows: Rows) -> str:
    """By how much natgrad is behind, where it is."""
    heads = ["set", "best", "its log density", "natgrad's", "behind by"]
    heads += ["its error", "natgrad's", "splits"]
    lines = []
    for name in counted(rows)["worse"]:
        it = standing(rows, name)
        assert it is not None
        gap, error = it.gaps["natgrad"]
        errors = [
            cell(rows, name, method, "error", it.splits) for method in (it.best, OURS)
        ]
        spread = f" ± {error:.3f}" if len(it.splits) > 1 else ""
        lines.append(
            [
                name,
                tables.TITLES[it.best],
                f"{it.means[it.best]:.3f}",
                f"{it.means['natgrad']:.3f}",
                f"{gap:.3f}{spread}",
                *errors,
                str(len(it.splits)),
            ]
        )
    text = markdown(heads, lines) if lines else "natgrad is behind on no data set."
    worse = [
        f"that of {tables.TITLES[method]} on {listed(names)}"
        for method in TREES
        for names, _ in [worse_calibrated(rows, method)]
    ]
    return (
        f"{text}\n\nnatgrad's calibration error is larger than {'; than '.join(worse)}."
    )


def copies(rows: Rows) -> str:
    """Sets with and without rows that repeat others."""
    parts = []
    for name in tables.DISTINCT:
        it, whole = standing(rows, name), name.partition(",")[0]
        if it is None:
            continue
        kept, all_rows = (
            of_set(rows, each)[OURS][it.splits[0]]["rows"] for each in (name, whole)
        )
        dropped = int(all_rows) - int(kept)
        parts.append(
            f"Of the {int(all_rows):,} training rows of {whole}, {dropped:,} repeat "
            "another row. Many of its held-out rows are copies of training rows too, "
            "so a method that remembers rows scores well on them. The second line "
            "drops copies before the split; its means are not comparable with those "
            "of the first."
        )
        parts.append(table(rows, "log_density", [whole, name]))
        behind = [
            f"{tables.TITLES[method]} {gap:.3f} ± {error:.3f}"
            for method, (gap, error) in sorted(
                it.gaps.items(), key=lambda each: each[1]
            )
            if method != it.best
        ]
        parts.append(
            f"On distinct rows {tables.TITLES[it.best]} is best. Behind it are "
            f"{listed(behind)}."
        )
    return "\n\n".join(parts) or NOT_RUN


# Optimisers


Curve = list[tuple[float, float]]


def curves(name: str) -> dict[str, tuple[Curve, float]]:
    """For each method its points (seconds, log density) and what compiling took."""
    found: dict[str, tuple[Curve, float]] = {}
    for row in tables.read(optimisers.RESULTS):
        if row["set"] == name and row["log_density"]:
            points, _ = found.setdefault(
                # A difference of two fits, which noise can make negative.
                row["method"],
                ([], max(0.0, float(row["compile_seconds"]))),
            )
            points.append((float(row["cpu_seconds"]), float(row["log_density"])))
    return found


def final(curve: Curve) -> float:
    """The median of the last fifth, as constant step sizes leave noise."""
    last = [value for _, value in curve[-max(1, len(curve) // 5) :]]
    return float(np.median(last))


def time_to(curve: Curve, quality: float) -> float:
    """When the curve first reaches a quality, and stays there at the next look."""
    for (seconds, value), (_, after) in zip(
        curve, [*curve[1:], curve[-1]], strict=True
    ):
        if value >= quality and after >= quality - 0.01:
            return seconds
    return np.inf


def ours(name: str, peer: str) -> str:
    """natgrad's run that has the likelihood of a peer."""
    is_softmax = name == "mnist" and peer.startswith("GPyTorch")
    return "natgrad, softmax" if is_softmax else "natgrad"


class Race(NamedTuple):
    peer: str
    quality: float
    theirs: float
    natgrad: float
    compile_theirs: float
    compile_natgrad: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.natgrad

    @property
    def ratio_with_compilation(self) -> float:
        ours = self.natgrad + self.compile_natgrad
        return (self.theirs + self.compile_theirs) / ours


def races(name: str) -> list[Race]:
    """Of each peer: when it reaches its own final quality, and when natgrad does."""
    found, made = curves(name), []
    for peer, (curve, compiled) in found.items():
        if peer.startswith("natgrad") or ours(name, peer) not in found:
            continue
        quality = final(curve)
        if not np.isfinite(quality):
            continue
        own, own_compiled = found[ours(name, peer)]
        made.append(
            Race(
                peer,
                quality,
                time_to(curve, quality),
                time_to(own, quality),
                compiled,
                own_compiled,
            )
        )
    return made


def best_race(name: str) -> Race | None:
    """Against the peer whose final quality is the highest."""
    return max(races(name), key=lambda race: race.quality, default=None)


def seconds(value: float) -> str:
    if not np.isfinite(value):
        return "not reached"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def times(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) and value > 0 else "–"


def table_of_races(most: int | None = None) -> str:
    """The races of each set, at most so many, from the best peer down."""
    heads = ["set", "peer", "its final log density", "its CPU s", "natgrad's CPU s"]
    heads += ["ratio", "with compilation"]
    lines = []
    for name in optimisers.SETS:
        made = sorted(races(name), key=lambda race: -race.quality)
        for place, race in enumerate(made[:most]):
            is_best = place == 0
            mark = (lambda text: f"**{text}**") if is_best else (lambda text: text)
            lines.append(
                [
                    name if is_best else "",
                    race.peer,
                    f"{race.quality:.3f}",
                    seconds(race.theirs),
                    seconds(race.natgrad),
                    mark(times(race.ratio)),
                    times(race.ratio_with_compilation),
                ]
            )
    failed = [
        f"{row['method']} on {row['set']}"
        for row in tables.read(optimisers.RESULTS)
        if not row["log_density"]
    ]
    text = markdown(heads, lines)
    return text + (
        f"\n\nThese runs failed: {'; '.join(failed)}. "
        "`benchmarks/results/optimisers.csv` has the errors."
        if failed
        else ""
    )


def verdict_on_optimisers() -> str:
    made = {name: best_race(name) for name in optimisers.SETS}
    seen = {name: race for name, race in made.items() if race is not None}
    if not seen:
        return "**Optimisers.** Not run yet."
    fast = [name for name, race in seen.items() if race.ratio >= 3]
    ratios = ", ".join(f"{name} {times(race.ratio)}" for name, race in seen.items())
    missed = [name for name, race in seen.items() if not np.isfinite(race.natgrad)]
    text = (
        f"**Optimisers.** At the same model and batch, `gp.fit` reaches the final "
        "quality of the best peer with at least three times less CPU on "
        f"{len(fast)} of {len(seen)} data sets. The ratios: {ratios}."
    )
    if missed:
        text += f" It does not reach it on {listed(missed)}."
    return text


# Steps


def step_rows() -> dict[int, dict[str, dict[str, str]]]:
    found: dict[int, dict[str, dict[str, str]]] = {}
    for row in tables.read(steps.RESULTS):
        found.setdefault(int(row["inducing"]), {})[row["method"]] = row
    return found


STEP_METHODS = ("natgrad", "gp.fit", "GPJax", "GPflow", "GPyTorch")


def table_of_steps() -> str:
    heads = ["M", "by hand, ms", *STEP_METHODS]
    lines = []
    for inducing, rows in sorted(step_rows().items()):
        bare = next(row for row in rows.values() if row["note"])
        ratios = [rows[m]["ratio"] if m in rows else "–" for m in STEP_METHODS]
        lines.append([f"{inducing:,}", bare["ms"], *ratios])
    return f"{STEPS}\n\n{markdown(heads, lines)}"


def table_of_costs() -> str:
    heads = ["M", "", "by hand", *STEP_METHODS]
    lines = []
    for inducing, rows in sorted(step_rows().items()):
        bare = next(row for row in rows.values() if row["note"])
        shown = [bare, *(rows[m] for m in STEP_METHODS if m in rows)]
        kinds = {"compile_seconds": "compilation, s", "peak_mb": "peak memory, MB"}
        for key, title in kinds.items():
            lines.append([f"{inducing:,}", title, *(row[key] for row in shown)])
    return markdown(heads, lines)


def verdict_on_steps() -> str:
    found = step_rows()
    ratio = lambda method: [
        float(rows[method]["ratio"]) for rows in found.values() if method in rows
    ]
    peers = [
        min(float(rows[m]["ratio"]) for m in STEP_METHODS[2:] if m in rows)
        / float(rows["natgrad"]["ratio"])
        for rows in found.values()
    ]
    own = ratio("natgrad")
    return (
        f"**Steps.** natgrad's step costs {min(own):.2f} to {max(own):.2f} of the same "
        f"step written by hand. The fastest peer needs {min(peers):.1f} to "
        f"{max(peers):.1f} times natgrad's CPU."
    )


# Figures


COLOURS = {
    "natgrad": "#d1495b",
    "exact-gp": "#555555",
    "boosting": "#2e7d32",
    "lightgbm": "#7cb342",
    "ngboost": "#00897b",
    "linear": "#aaaaaa",
    "gpytorch": "#ef8a17",
    "gpflow": "#1e88e5",
    "gpjax": "#7e57c2",
}
MARKERS = dict(zip(COLOURS, "osDdPXv^<", strict=True))


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.facecolor": "white",
        }
    )
    return plt


def save(figure: Any, name: str) -> None:
    path = FIGURES / f"benchmark_{name}.png"
    figure.savefig(path, dpi=220, bbox_inches="tight", metadata={"Software": None})


def differences(rows: Rows, name: str) -> dict[str, tuple[float, bool]]:
    """Each method's log density minus natgrad's, and whether it has all splits."""
    found, it = of_set(rows, name), standing(rows, name)
    assert it is not None
    other: dict[str, tuple[float, bool]] = {}
    for method, runs in found.items():
        pairs = [
            float(run["log_density"]) - float(found[OURS][split]["log_density"])
            for split, run in runs.items()
            if split in it.splits and run["log_density"]
        ]
        if method != OURS and pairs:
            other[method] = float(np.mean(pairs)), method in it.means
    return other


def draw_tables(rows: Rows) -> None:
    plt = pyplot()
    names = [name for name in tables.SETS if standing(rows, name)]
    height = 0.3 * len(names) + 1.5
    figure, both = plt.subplots(
        1, 2, figsize=(9, height), sharex=True, sharey=True, layout="constrained"
    )
    points = {name: differences(rows, name) for name in names}
    values = [value for found in points.values() for value, _ in found.values()]
    for axes, (title, methods) in zip(both, PANELS.items(), strict=True):
        for method in methods:
            colour = COLOURS[method]
            style: Any = {"marker": MARKERS[method], "linestyle": "", "color": colour}
            for place, name in enumerate(names):
                if method in points[name]:
                    value, is_whole = points[name][method]
                    fill = colour if is_whole else "none"
                    axes.plot(value, place, markerfacecolor=fill, **style)
            axes.plot([], [], label=tables.TITLES[method], **style)
        axes.axvline(0, color=COLOURS[OURS], linewidth=1.2, zorder=1)
        axes.set_title(title, fontsize=9, pad=26)
        axes.legend(loc="lower center", ncols=4, fontsize=7, bbox_to_anchor=(0.5, 1.0))
        axes.grid(axis="both", linewidth=0.3)
    axes = both[0]
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(1.2 * min(values), max(1.0, 1.2 * max(values)))
    ticks = [-10, -3, -1, -0.3, -0.1, 0, 0.1, 0.3, 1]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    figure.supxlabel(
        "log density of held-out rows minus natgrad's, nats per row; right of the red "
        "line is better than natgrad\n"
        "hollow: fewer splits, compared on those; the axis is linear between -0.1 and "
        "0.1, and logarithmic outside",
        fontsize=8,
    )
    save(figure, "tables")
    plt.close(figure)


LIBRARY = {"natgrad": "natgrad", "GPJax": "gpjax", "GPflow": "gpflow"}


def draw_optimisers() -> None:
    plt = pyplot()
    names = [name for name in optimisers.SETS if curves(name)]
    if not names:
        return
    lines = 1 + len(names) // 3  # the last place is for the legend
    figure, grid = plt.subplots(
        lines, 3, figsize=(8.5, 2.6 * lines), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    for axes, name in zip(grid.flat, names, strict=False):
        ends = []
        for method, (curve, _) in curves(name).items():
            library, _, kind = method.partition(", ")
            colour = COLOURS[LIBRARY.get(library, "gpytorch")]
            style = {"Adam": ":", "softmax": "-.", "all rows": "--"}.get(kind, "-")
            width = 2.2 if library == "natgrad" else 1.3
            (line,) = axes.plot(*zip(*curve, strict=True), style, color=colour)
            line.set_linewidth(width)
            handles.setdefault(method, line)
            ends.append(final(curve))
        high, low = max(ends), min(ends)
        reach = max(high - low, 0.05)
        axes.set_ylim(high - max(3 * reach, 0.3), high + 0.15 * reach)
        axes.set_xscale("log")
        axes.set_title(name, fontsize=9)
    for axes in grid.flat[len(names) :]:
        axes.axis("off")
    last = grid.flat[-1]
    last.legend(handles.values(), handles.keys(), loc="center", fontsize=8)
    figure.supxlabel("CPU seconds of training, compilation excluded", fontsize=9)
    figure.supylabel("held-out log density, nats per row", fontsize=9)
    save(figure, "optimisers")
    plt.close(figure)


def draw_steps() -> None:
    plt = pyplot()
    found = step_rows()
    if not found:
        return
    kinds = {
        "ratio": "CPU time / step by hand",
        "compile_seconds": "compilation, CPU s",
        "peak_mb": "peak memory, MB",
    }
    figure, grid = plt.subplots(1, 3, figsize=(8.5, 2.9), layout="constrained")
    sizes = sorted(found)
    for axes, (key, title) in zip(grid, kinds.items(), strict=True):
        for method in STEP_METHODS:
            library = {"gp.fit": "natgrad"}.get(method, method)
            colour = COLOURS[LIBRARY.get(library, "gpytorch")]
            shown = [size for size in sizes if method in found[size]]
            axes.plot(
                shown,
                [float(found[size][method][key]) for size in shown],
                "--o" if method == "gp.fit" else "-o",
                color=colour,
                markersize=4,
                label=method,
            )
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("inducing inputs M")
        axes.set_title(title, fontsize=9)
        axes.set_ylim(bottom=0)
    grid[0].axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    grid[2].legend(fontsize=7, loc="upper left")
    save(figure, "steps")
    plt.close(figure)


# The page


def filled(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{PAGE.name} has no {begin}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def notes(rows: Rows) -> str:
    failed = [row for row in rows if not row["log_density"]]
    heads = ["set", "method", "split", "what happened"]
    lines = [
        [row["set"], tables.TITLES[row["method"]], row["split"], row["note"]]
        for row in failed
    ]
    return markdown(heads, lines) if lines else "None."


def appendix(rows: Rows) -> str:
    parts = [
        "# Benchmark tables\n\n"
        "More numbers of the [benchmarks](../../docs/results/benchmarks.md). Scores on "
        "tables are means over the splits in the last column, which every method was "
        "run on. The best is bold; what is within one standard error of it is in "
        "italics. "
        "`python benchmarks/run.py page` writes this page from the tables in this "
        "folder."
    ]
    for score, title in SCORES.items():
        parts.append(f"## {title}\n\n{table(rows, score)}")
    parts.append(f"## Rows that repeat others\n\n{copies(rows)}")
    parts.append(f"## Runs without a result\n\n{notes(rows)}")
    parts.append(
        "## Optimisers, every peer\n\nThe columns are those of "
        "[the best peers](../../docs/results/benchmarks.md#optimisers).\n\n"
        f"{table_of_races()}"
    )
    parts.append(f"## Compilation and memory of a step\n\n{table_of_costs()}")
    return "\n\n".join(parts) + "\n"


def loads(rows: Rows) -> str:
    """The load of the machine while runs were made."""
    found = [float(row["load"]) for row in rows if row.get("load")]
    low, middle, high = np.quantile(found, [0.05, 0.5, 0.95])
    return (
        f"The machine has two cores and other work ran on it: its load was "
        f"{middle:.1f} (5 % to 95 %: {low:.1f} to {high:.1f}). Compare CPU seconds, "
        "not wall-clock seconds. They depend on the load too, so trust only large "
        "ratios."
    )


def blocks(rows: Rows) -> dict[str, str]:
    """What the page says of the results, by the names of its blocks."""
    verdicts = [verdict_on_tables(rows), verdict_on_calibration(rows)]
    verdicts += [verdict_on_optimisers(), verdict_on_steps()]
    return {
        "verdict": "\n\n".join(verdicts),
        "log density": table(rows, "log_density"),
        "summary": summary(rows),
        "losses": losses(rows),
        "load": loads(rows),
        "curves": CURVES if any(map(curves, optimisers.SETS)) else NOT_RUN,
        "races": table_of_races(1) if any(map(races, optimisers.SETS)) else NOT_RUN,
        "steps": table_of_steps(),
    }


def main(*_: Any) -> None:
    rows, text = tables.read(), PAGE.read_text()
    found = blocks(rows)
    for name, content in found.items():
        text = filled(text, name, content)
    PAGE.write_text(text)
    APPENDIX.write_text(appendix(rows))
    draw_tables(rows)
    draw_optimisers()
    draw_steps()
    print(found["verdict"])
