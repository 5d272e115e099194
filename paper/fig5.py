"""Figure 5: naval, whose posterior is ill-conditioned, with three likelihoods."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper import curves
from paper.stochastic import Run, run as run
from paper.store import Config, Store


LIKELIHOODS = ("Gaussian", "beta", "ordinal")
RATES = (0.1, 0.01, 0.001)
SCHEDULE = (1e-4, 0.1, 40)
STEPS = 5000


def configs(is_quick: bool, store: Store) -> Iterator[Config]:
    steps, number = (30, 3) if is_quick else (STEPS, 40)
    for likelihood in LIKELIHOODS[:1] if is_quick else LIKELIHOODS:
        base = Run(
            "fig5", "naval", likelihood, 0, "Adam", steps, rate=0.01, checks=number
        )
        yield base.but(method="natgrad", rate=None).config()
        for rate in RATES:
            yield base.but(rate=rate).config()
        # The paper does not give Adam's rate next to the natural step.
        for rate in RATES[1:]:
            paired = base.but(rate=rate)
            yield paired.with_schedule(*SCHEDULE).config()
            yield paired.but(method="guarded").config()


def draw(table: Any, folder: Path) -> list[Path]:
    shown = curves.named(table, with_rates=True)
    columns = {f"naval, {name}": shown.likelihood == name for name in LIKELIHOODS}
    columns = {title: rows for title, rows in columns.items() if rows.any()}
    rows = [("test", "iteration"), ("bound", "seconds")]
    return [curves.draw(shown, columns, rows, folder / "fig5.png")]
