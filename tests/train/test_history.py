"""Laws of the records of a run."""

from itertools import pairwise

import pytest

from natgrad.train._history import History, Record


@pytest.mark.parametrize("number", [0, 1, 9, 10, 11, 95, 1000])
def test_a_thinned_history_is_short_even_and_ends_as_the_run_did(number):
    history = History()
    history.reason = "converged"
    history.records = [Record(step, 0.1 * step, -1.0) for step in range(number)]
    thin = history.thinned(10)
    steps = thin.column("step")
    assert thin.reason == "converged"
    assert len(thin) == number if number <= 10 else 5 <= len(thin) <= 10
    assert steps[-1:] == history.column("step")[-1:]
    assert len({late - early for early, late in pairwise(steps)}) <= 1
    assert set(thin) <= set(history)
