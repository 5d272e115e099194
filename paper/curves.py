"""Curves of runs on batches: which are shown, and how."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paper import style
from paper.stochastic import Run
from paper.store import Store


RATES = tuple(10.0**-k for k in range(7))


def ended(table: Any) -> Any:
    """The last row of each run."""
    return table.sort_values("iteration").groupby("run").tail(1)


def is_stable(run: Any) -> bool:
    """Whether all losses were finite, and the bound ended about as high as it ever was.

    That is above where it began, and within half a nat per row of its highest.
    """
    bound = run.sort_values("iteration").bound
    is_kept = bound.iloc[-1] > max(bound.iloc[0], bound.max() - 0.5)
    return bool(run.not_finite.max() == 0 and is_kept)


def stable_rates(search: Any) -> dict[tuple[str, str], float]:
    """For each set and method of a search the largest rate that is stable."""
    found: dict[tuple[str, str], float] = {}
    for (data, method, rate), run in search.groupby(["data", "method", "rate"]):
        if is_stable(run):
            found[data, method] = max(rate, found.get((data, method), 0.0))
    return found


def searched(
    bases: Iterable[Run], rates: Sequence[float], splits: int, store: Store
) -> Iterable[Run]:
    """Adam and GD: at all rates on the first split, on others the largest stable one.

    That is the paper's search; it does not say on which rows it was made.
    """
    bases = list(bases)
    search = [
        base.but(method=method, rate=rate)
        for base in bases
        for method in ("Adam", "GD")
        for rate in rates
    ]
    yield from search
    configs = [run.config() for run in search]
    if store.missing(configs):
        return
    stable = stable_rates(store.of(configs))
    for base in bases:
        for method in ("Adam", "GD"):
            if rate := stable.get((base.data, method)):
                for split in range(1, splits):
                    yield base.but(method=method, rate=rate, split=split)


def with_stable_rates(table: Any) -> Any:
    """The rows to draw: of Adam and GD, those of the largest stable rate."""
    is_searched = table.method.isin(["Adam", "GD"])
    rates = stable_rates(table[is_searched & (table.split == 0)])
    keys = zip(table.data, table.method, strict=True)
    rate = np.array([rates.get(key, np.nan) for key in keys])
    return table[~is_searched | (table.rate == rate)]


def named(table: Any, with_rates: bool = False) -> Any:
    """With a column `label`: what a curve is called."""

    def label(method: str, is_joint: bool, rate: float) -> str:
        if method == "natgrad":
            return "natgrad's default"
        at_rate = f" {rate:g}" if with_rates else ""
        second = " + Adam" if is_joint and method in ("NGD", "guarded") else ""
        return f"{method}{second}{at_rate}"

    columns = (table.method, table.is_joint, table.rate)
    return table.assign(label=[label(*row) for row in zip(*columns, strict=True)])


TOLD = {
    "gap": "nats per row to the best",
    "bound": "ELBO, nats/row",
    "test": "test log density",
    "error": "test error",
    "iteration": "iteration",
    "seconds": "CPU seconds",
}


def draw(
    table: Any,
    columns: Mapping[str, Any],
    rows: Sequence[tuple[str, str]],
    path: Path,
    room: float = 1.2,
    floor: float = 1e-6,
    is_tall: bool = False,
) -> Path:
    """A column of pictures for each part of a table; a row is (value, against).

    A tall picture has a row for each part instead, so that many parts stay readable. A
    gap is what the bound misses of the best that any run found in that split; what is
    nearer than `floor` is drawn there, and marked. The band is of all splits.
    """
    across, down = (rows, columns) if is_tall else (columns, rows)
    with style.paper() as pyplot:
        high = 1.15 if is_tall and len(down) > 1 else 1.9
        size = (2.4 * len(across) + room, high * len(down) + 0.4)
        figure, axes = pyplot.subplots(
            *(len(down), len(across)),
            figsize=size,
            squeeze=False,
            layout="constrained",
            sharex="col" if is_tall else False,
        )
        grid = axes.T if is_tall else axes
        for place, (title, chosen) in enumerate(columns.items()):
            shown = table[chosen]
            for ax, (value, against) in zip(grid[:, place], rows, strict=True):
                is_cut = False
                for label, runs in shown.groupby("label"):
                    x, y = _values(runs, shown, value, against)
                    if value == "gap":
                        is_cut |= bool((y < floor).any())
                        y = np.maximum(y, floor)
                    style.band(ax, x, y, label)
                ax.set_xscale("log")
                if not is_tall or place == len(columns) - 1:
                    ax.set_xlabel(TOLD[against])
                if value in ("gap", "error"):
                    ax.set_yscale("log")
                    if is_cut:
                        style.mark_floor(ax, floor, note=True)
                else:
                    style.above(ax, shown.groupby("label")[value].max().min())
            grid[0, place].set_title(title, loc="left" if is_tall else "center")
        for row, (value, _) in zip(grid, rows, strict=True):
            for ax in row if is_tall else row[:1]:
                ax.set_ylabel(TOLD[value])
        return style.saved(figure, axes, path)


def _values(runs: Any, shown: Any, value: str, against: str) -> Any:
    """Where the iterations are, and a row of values for each split."""
    best = shown.groupby("split").bound.max()
    ordered = [run.sort_values("iteration")[1:] for _, run in runs.groupby("split")]
    x = np.median([run[against].to_numpy() for run in ordered], axis=0)
    if value != "gap":
        return x, np.stack([run[value].to_numpy(float) for run in ordered])
    gaps = [best[run.split.iloc[0]] - run.bound.to_numpy() for run in ordered]
    return x, np.stack(gaps)
