"""What a method answers for the test rows, its scores, and the table of all runs.

An answer is a dictionary of arrays over the T test rows, in the user's units:

- classes: `probabilities`, [T, classes];
- numbers and counts: `log_density` [T]; `cdf_below` and `cdf_above` [T], the
  distribution function at the target (at half a step below and above it, if the set
  has a resolution r, and then `log_density` is the log of their difference over r);
  `mean` [T]; and `quantiles` [T, 40] at `LEVELS`;
- both may have `note`, a few words on what was chosen, and `predict_cpu`, the CPU
  seconds of the predictions. What remains of the process counts as the fit.
"""

from pathlib import Path
from typing import Any

import environments
import numpy as np
import tables
from rows_data import SETS


RESULTS = Path(__file__).parent / "results" / "rows.csv"
FIELDS = (
    "set",
    "split",
    "method",
    "rows",
    "test_rows",
    "log_density",
    "se",
    "log_density_distinct",
    "error",
    "crps",
    "cover50",
    "cover90",
    "fit_cpu",
    "ms_row",
    "note",
)
LEVELS = (np.arange(40) + 0.5) / 40
SMALLEST = 1e-300
ENGINES = ("engine", "engine-groups", "engine_sites")


# Answers


class Warp:
    """An increasing map of the target, to mean 0 and deviation 1 of training rows."""

    def __init__(self, name: str, y: np.ndarray):
        self.name = name
        self.median = float(np.median(y))
        self.spread = 2 * float(np.median(np.abs(y - self.median))) or float(y.std())
        self.low = {"log": y.min() / 10, "log1p": -1 + 1e-9}.get(name, -np.inf)
        raw = self._forward(y)
        self.mean, self.scale = raw.mean(), raw.std()

    def _forward(self, y: np.ndarray) -> np.ndarray:
        y = np.maximum(y, self.low)
        if self.name == "asinh":
            return np.arcsinh((y - self.median) / self.spread)
        return {"log": np.log, "log1p": np.log1p, "identity": np.asarray}[self.name](y)

    def forward(self, y: np.ndarray) -> np.ndarray:
        return (self._forward(y) - self.mean) / self.scale

    def back(self, t: np.ndarray) -> np.ndarray:
        t = np.clip(t, -50, 50) * self.scale + self.mean
        if self.name == "asinh":
            return np.sinh(t) * self.spread + self.median
        return {"log": np.exp, "log1p": np.expm1, "identity": np.asarray}[self.name](t)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        y = np.maximum(y, self.low)
        slope = {
            "identity": lambda: np.ones_like(y),
            "log": lambda: 1 / y,
            "log1p": lambda: 1 / (1 + y),
            "asinh": lambda: 1 / np.hypot(y - self.median, self.spread),
        }[self.name]()
        return np.log(slope / self.scale)


def warps(data: Any) -> list[Warp]:
    """Those that the training targets allow."""
    y, names = data["y"], ["identity", "asinh"]
    if y.min() > 0:
        names.append("log")
    if y.min() == 0 or (y.min() > 0 and data["kind"] == "count"):
        names.append("log1p")
    return [Warp(name, y) for name in names]


def mass(distribution: Any, warp: Warp, y: np.ndarray, data: Any) -> dict[str, Any]:
    """Log densities of y, at the resolution of the set, and distribution functions.

    `distribution` is of the warped target, one element a row, as SciPy freezes it.
    """
    step = data["resolution"]
    if step is None:
        t = warp.forward(y)
        log_density = distribution.logpdf(t) + warp.log_slope(y)
        below = above = distribution.cdf(t)
    else:
        above = distribution.cdf(warp.forward(y + step / 2))
        below = distribution.cdf(warp.forward(y - step / 2))
        below = np.where(y > 0, below, 0.0) if data["kind"] == "count" else below
        log_density = np.log(np.maximum(above - below, SMALLEST) / step)
    return {"log_density": log_density, "cdf_below": below, "cdf_above": above}


def answer_of(distribution: Any, warp: Warp, data: Any) -> dict[str, Any]:
    """The answer of distributions of the warped targets of the test rows."""
    quantiles = clipped(
        np.stack([warp.back(distribution.ppf(level)) for level in LEVELS], 1), data
    )
    answer = mass(distribution, warp, data["y_test"], data)
    return answer | {"quantiles": quantiles, "mean": quantiles.mean(1)}


def clipped(quantiles: np.ndarray, data: Any) -> np.ndarray:
    """Within half a range of the training targets: far tails decide no CRPS."""
    low, high = data["y"].min(), data["y"].max()
    return np.clip(quantiles, 1.5 * low - 0.5 * high, 1.5 * high - 0.5 * low)


# Scores


def score(answer: Any, data: Any) -> tuple[dict[str, float], np.ndarray]:
    """The scores of a run, and the log density of each test row."""
    y = data["y_test"]
    if "probabilities" in answer:
        probabilities = np.asarray(answer["probabilities"], float)
        given = probabilities[np.arange(len(y)), y.astype(int)]
        log_density = np.log(np.clip(given, np.finfo(float).eps, 1))
        found = {"error": np.mean(probabilities.argmax(1) != y)}
    else:
        log_density = np.asarray(answer["log_density"], float)
        quantiles = np.asarray(answer["quantiles"])
        is_above = y[:, None] < quantiles
        below, above = answer["cdf_below"], answer["cdf_above"]
        place = below + (above - below) * np.random.default_rng(0).random(len(y))
        found = {
            "error": np.sqrt(np.mean((answer["mean"] - y) ** 2)),
            "crps": np.mean(2 * (is_above - LEVELS) * (quantiles - y[:, None])),
            "cover50": np.mean(np.abs(place - 0.5) < 0.25),
            "cover90": np.mean(np.abs(place - 0.5) < 0.45),
        }
    mean, se = mean_and_error(log_density, data["groups_test"])
    found |= {"log_density": mean, "se": se}
    is_copy = data["is_copy_test"]
    if is_copy.any():
        found["log_density_distinct"] = log_density[~is_copy].mean()
    return found, log_density


def mean_and_error(
    values: np.ndarray, groups: np.ndarray | None
) -> tuple[float, float]:
    """The mean and its standard error, between groups if there are some."""
    mean = values.mean()
    of = np.arange(len(values)) if groups is None else groups
    sums = np.bincount(np.unique(of, return_inverse=True)[1], values - mean)
    few = len(sums) / max(len(sums) - 1, 1)
    return float(mean), float(np.sqrt(few * np.sum(sums**2)) / len(values))


# Files


def kept(name: str, split: int | str, method: str) -> Path:
    """Where the log densities of a run are kept, outside the repository."""
    return environments.cache() / "rows" / f"{name}-{split}-{method}.npz"


def table() -> str:
    """Means over splits of every method on every set, and paired differences."""
    rows, lines = tables.read(RESULTS), ["# Rows: means over splits", ""]
    names = [name for name in SETS if any(row["set"] == name for row in rows)]
    shown = ("log_density", "error", "crps", "cover50", "cover90", "fit_cpu", "ms_row")
    heads = ["set", "method", "splits", "log density", "se", "RMSE or error", "CRPS"]
    heads += ["in 50 %", "in 90 %", "fit, CPU s", "ms a row", "failed"]
    lines += [" | ".join(heads), "|".join(["---"] * len(heads))]
    for name in names:
        for method in dict.fromkeys(
            row["method"] for row in rows if row["set"] == name
        ):
            runs = [r for r in rows if (r["set"], r["method"]) == (name, method)]
            done = [run for run in runs if run["log_density"]]
            cells = {key: mean_of(done, key) for key in shown}
            errors = [float(run["se"]) for run in done]
            se = np.sqrt(np.sum(np.square(errors))) / len(done) if done else np.nan
            log_density, *others = cells.values()
            failed = "; ".join(
                sorted({r["note"] for r in runs if not r["log_density"]})
            )
            cells = [name, method, str(len(done)), log_density, f"{se:.2g}", *others]
            lines.append(" | ".join([*cells, failed]))
            if any(run["log_density_distinct"] for run in done) and name == "protein":
                value = mean_of(done, "log_density_distinct")
                lines.append(f"protein distinct | {method} | {len(done)} | {value}")
    lines += ["", "## The engine minus LightGBM, nats a row", ""]
    lines += [
        "set | engine | LightGBM | splits | difference | se",
        "---|---|---|---|---|---",
    ]
    for name in names:
        lines += [line for engine in ENGINES for line in paired(name, engine)]
    lines += ["", "## Coverage of the engine, 750 test rows or more", ""]
    lines += [
        "set | engine | split | in 50 % | in 90 % | holds",
        "---|---|---|---|---|---",
    ]
    lines += [coverage(row) for row in rows if is_counted(row)]
    return "\n".join(lines) + "\n"


def is_counted(row: dict[str, str]) -> bool:
    return (
        row["method"].startswith("engine")
        and bool(row["cover50"])
        and int(row["test_rows"]) >= 750
    )


def coverage(row: dict[str, str]) -> str:
    """Whether bands hold what they should: within 4 points or 3 binomial errors at
    50 %, and within 2 points or 3 errors at 90 %."""
    holds = True
    for level, points in ((0.5, 0.04), (0.9, 0.02)):
        error = 3 * np.sqrt(level * (1 - level) / int(row["test_rows"]))
        found = float(row[f"cover{round(100 * level)}"])
        holds &= abs(found - level) <= max(points, error)
    cells = (row[key] for key in ("set", "method", "split", "cover50", "cover90"))
    return " | ".join([*cells, "yes" if holds else "no"])


def mean_of(runs: list[dict[str, str]], key: str) -> str:
    values = [float(run[key]) for run in runs if run[key]]
    return f"{np.mean(values):.4g}" if values else ""


def paired(name: str, engine: str) -> list[str]:
    """Differences on the same test rows, from the log densities that are kept."""
    lines = []
    for other in ("lightgbm", "lightgbm-groups"):
        differences, groups = [], []
        for split in range(100):
            paths = [kept(name, split, method) for method in (engine, other)]
            if all(path.exists() for path in paths):
                ours, theirs = (np.load(path) for path in paths)
                differences.append(ours["log_density"] - theirs["log_density"])
                groups.append(1e6 * split + ours["groups"])
        if differences:
            joined = np.concatenate(differences), np.concatenate(groups)
            mean, se = mean_and_error(*joined)
            cells = [name, engine, other, str(len(differences)), f"{mean:+.3f}"]
            lines.append(" | ".join([*cells, f"{se:.3f}"]))
    return lines
