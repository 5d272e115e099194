"""A claim of the paper, and how its check is worded."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


CONFIRMED, NOT_CONFIRMED = "confirmed", "**not confirmed**"
NOT_TESTABLE = "not testable here"

Tables = dict[str, Any]
"""The results of the figures by their names, as far as they are there."""


class Found(NamedTuple):
    """What was measured, in words, and what follows."""

    measured: str
    verdict: str


class Claim(NamedTuple):
    """A sentence of the paper, the rule that decides on it, and its check.

    `figures` are those whose results it needs. `is_quick` says whether their quick
    forms are enough.
    """

    where: str
    text: str
    rule: str
    figures: tuple[str, ...]
    check: Callable[[Tables], Found]
    is_quick: bool = False


def found(measured: str, is_so: Any) -> Found:
    return Found(measured, CONFIRMED if bool(is_so) else NOT_CONFIRMED)


def spread(values: Any, form: str = ".2g") -> str:
    """The lowest and the highest of some numbers."""
    values = np.asarray(list(values), float)
    low, high = np.min(values), np.max(values)
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def each(values: Any, form: str = ".2g") -> str:
    """Numbers by their names."""
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())
