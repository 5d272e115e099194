"""Values of runs on batches at some of their evaluations, by case and label."""

from typing import Any

import numpy as np


CASES = ["data", "likelihood", "split"]


def last(table: Any, iteration: int) -> int:
    """The last iteration, up to a given one, at which all runs were evaluated."""
    return int(table.iteration[table.iteration <= iteration].max())


def at(table: Any, iteration: int, value: str = "bound") -> Any:
    """By case and label: a value at the last evaluation up to an iteration."""
    rows = table[table.iteration == last(table, iteration)]
    return rows.pivot_table(index=CASES, columns="label", values=value)


def late(table: Any, value: str) -> Any:
    """By case and label: the mean of a value over the last five evaluations."""
    rows = table.sort_values("iteration").groupby("run").tail(5)
    return rows.pivot_table(index=CASES, columns="label", values=value)


def at_time(table: Any, seconds: float) -> Any:
    """By case and label: the bound after a time, between two evaluations."""
    rows = []
    for (*case, label), run in table.groupby([*CASES, "label"]):
        run = run.sort_values("iteration")
        bound = np.interp(seconds, run.seconds, run.bound)
        rows.append(
            {**dict(zip(CASES, case, strict=True)), "label": label, "at": bound}
        )
    frame = type(table)(rows)
    return frame.pivot_table(index=CASES, columns="label", values="at")


def share(wins: Any) -> str:
    return f"{int(wins.sum())} of {len(wins)}"


def starting(labels: Any, name: str) -> list[str]:
    """The labels of a method at all its rates."""
    return [label for label in labels if label.split()[0] == name]
