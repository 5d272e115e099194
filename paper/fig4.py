"""Figure 4: batches of 256 rows, hyperparameters and inducing inputs trained too.

The natural step on q alternates with one of Adam on all else; Adam and GD alone move
everything at once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper import fig3
from paper.stochastic import run as run
from paper.store import Config, Store


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    for spec in fig3.runs("fig4", True, is_quick, store):
        yield spec.config()


def draw(table: Any, folder: Path) -> list[Path]:
    return [fig3.picture(table, folder / "fig4.png", floor=1e-3)]
