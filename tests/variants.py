"""Variants of a mechanism: the gate tests some of them, and the nightly run all."""

from collections.abc import Iterable

import pytest


def variants(names: Iterable, gate: Iterable) -> list:
    """Parameters for `pytest.mark.parametrize`; those out of the gate are marked."""
    names, gate = list(names), list(gate)
    unknown = [name for name in gate if name not in names]
    assert not unknown, f"not among the variants: {unknown}"
    marks = lambda name: [] if name in gate else [pytest.mark.nightly]
    label = lambda name: getattr(name, "__name__", str(name))
    return [pytest.param(name, id=label(name), marks=marks(name)) for name in names]
