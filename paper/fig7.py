"""Figure 7: mnist, ten latent functions, robust-max, batches of 1,024 images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paper import curves
from paper.stochastic import Run, run as run
from paper.store import Config, Store


SCHEDULE = (1e-6, 0.02, 2000)
RATES = (0.01, 0.001)
STEPS = 5000
LIMIT = 500


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    """Five runs; quick, on few images, as evaluating all of them takes a minute."""
    limit = {"limit": LIMIT} if is_quick else {}
    for spec in _runs(is_quick):
        yield spec.config() | limit


def _runs(is_quick: bool) -> Iterator[Run]:
    steps, number, rows = (4, 2, 128) if is_quick else (STEPS, 18, 1024)
    base = Run(
        *("fig7", "mnist", "robust-max", 0, "Adam", steps),
        rate=0.01,
        rows=rows,
        checks=number,
    )
    yield base.with_schedule(*SCHEDULE)
    yield base.but(method="guarded")
    yield base.but(method="natgrad", rate=None)
    for rate in RATES:
        yield base.but(rate=rate)


def draw(table: Any, folder: Path) -> list[Path]:
    shown = curves.named(table, with_rates=True)
    rows = [("test", "iteration"), ("error", "iteration"), ("bound", "seconds")]
    columns = {"mnist, robust-max": np.ones(len(shown), bool)}
    path = folder / "fig7.png"
    return [curves.draw(shown, columns, rows, path, room=1.6, is_tall=True)]
