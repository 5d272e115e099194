"""The target of a table, and which likelihood it looks like."""

from typing import Any, NamedTuple

import numpy as np

from natgrad.data import _tables as tables
from natgrad.errors import InputError


MAX_CLASSES = 100
"""How many different strings may be classes: more of them are names, or text."""

FEW = 10
"""How many different whole numbers may be classes or grades, and not counts."""

MAX_COUNT = 10_000
"""How large a whole number may be for a count."""


def target_of(table: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The target as strings or as numbers, and which of its rows have one."""
    import pyarrow as arrow

    tables.require(table.column_names, [name])
    column = table[name]
    if arrow.types.is_boolean(column.type):
        column = column.cast(arrow.string())
    if tables.is_text(column.type):
        values = np.array(column.to_pylist(), dtype=object)
        return values, np.array([value is not None for value in values])
    values = tables.numbers(column, name)
    return values, ~np.isnan(values)


def as_labels(y: np.ndarray) -> np.ndarray:
    """Classes as a user would write them: 1, and not 1.0."""
    if y.dtype.kind == "f" and (y == np.round(y)).all():
        return y.astype(np.int64)
    return y.astype(str) if y.dtype == object else y


class Guess(NamedTuple):
    """A likelihood, and what in the target speaks for it."""

    likelihood: str
    reason: str


def guess(y: np.ndarray) -> Guess:
    """The likelihood that a target of strings or numbers looks like.

    Strings are classes. So are two numbers, and a few whole numbers 0, 1, 2, ...; a few
    whole numbers that begin elsewhere are grades. Whole numbers that come near 0 and
    are never negative are counts. All else is real: "auto" if the estimator is to
    compare several noises.
    """
    from natgrad.sklearn._targets import noises

    values = np.unique(y)
    number = len(values)
    if number < 2:
        raise InputError(
            f"the target is {y[0]!s:.40} in every row; there is nothing to learn"
        )
    if y.dtype.kind in "OSUT":
        if number > MAX_CLASSES:
            raise InputError(
                f"the target has {number:,} different strings, such as {values[0]!r}; "
                f"classes may be {MAX_CLASSES}: is it the right column?"
            )
        kind = "bernoulli" if number == 2 else "softmax"
        return Guess(kind, f"the target has {number} classes: {_listed(values)}")
    if number == 2:
        return Guess("bernoulli", f"the target has two values: {_listed(values)}")
    if (y == np.round(y)).all():
        if number <= FEW and (values == np.arange(number)).all():
            return Guess(
                "softmax", f"the target has {number} classes: 0 to {number - 1}"
            )
        if number <= FEW:
            said = f"the target has {number} grades: {_listed(values)}"
            return Guess("ordinal", said)
        low, high = values[0], values[-1]
        if low >= 0 and low <= y.mean() / 4 and high <= MAX_COUNT:
            mean, variance = float(y.mean()), float(y.var())
            said = f"the target counts, from {low:g} to {high:g}"
            if variance > 1.5 * mean:
                return Guess(
                    "negative-binomial", f"{said}, and its variance is above its mean"
                )
            return Guess("poisson", said)
    compared = noises(len(y))
    if compared[1:]:
        names = f"{', '.join(compared[:-1])} or {compared[-1]}"
        return Guess("auto", f"the target is real; its noise may be {names}")
    return Guess(compared[0], "the target is real")


def _listed(values: np.ndarray) -> str:
    shown = [str(value) for value in as_labels(values)]
    more = ", ..." if shown[6:] else ""
    return ", ".join(shown[:6]) + more
