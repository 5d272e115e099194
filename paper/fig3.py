"""Figure 3: batches of 256 rows, hyperparameters fixed.

The rates of Adam and GD are the largest of 1, 0.1, ..., 1e-6 that are stable: no loss
of 5,000 is not finite, and the bound ends about as high as it ever was.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper import curves
from paper.fig2 import SETS
from paper.stochastic import Run, run as run
from paper.store import Config, Store


SCHEDULE = (1e-4, 0.1, 5)
SLOW = (1e-4, 0.1, 5000)
STEPS, SPLITS = 5000, 5


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    for spec in runs("fig3", False, is_quick, store):
        yield spec.config()


def runs(figure: str, is_joint: bool, is_quick: bool, store: Store) -> Iterator[Run]:
    """Those of this figure, or of the next, which trains hyperparameters too."""
    steps, splits = (50, 1) if is_quick else (STEPS, SPLITS)
    names = list(SETS)[1:2] if is_quick else list(SETS)
    bases = [
        Run(figure, name, SETS[name], 0, "Adam", steps, is_joint=is_joint)
        for name in names
    ]
    for base in bases:
        for split in range(splits):
            # The paper does not give Adam's rate next to the natural step.
            paired = base.but(split=split, rate=0.01 if is_joint else None)
            yield paired.with_schedule(*SCHEDULE)
            yield paired.but(method="guarded")
            if is_joint:
                yield paired.but(method="natgrad", rate=None)
        if not is_joint:
            # What if γ had to be small for long? It is not drawn.
            yield base.with_schedule(*SLOW).but(method="NGD slow")
    rates = curves.RATES[1:3] if is_quick else curves.RATES
    yield from curves.searched(bases, rates, splits, store)


def draw(table: Any, folder: Path) -> list[Path]:
    return [picture(table, folder / "fig3.png")]


def picture(table: Any, path: Path, floor: float = 1e-6) -> Path:
    """Bounds against iterations, and against time."""
    table = table[table.method != "NGD slow"]
    shown = curves.named(curves.with_stable_rates(table))
    columns = {f"{name}, {SETS[name]}": shown.data == name for name in SETS}
    columns = {title: rows for title, rows in columns.items() if rows.any()}
    rows = [("gap", "iteration"), ("gap", "seconds")]
    return curves.draw(shown, columns, rows, path, floor=floor)
