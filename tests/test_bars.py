"""The bars of the step size, small: see experiments/results/bars.md for the whole."""

import importlib
import math
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import gp
from natgrad.data._batches import Arrays


pytestmark = pytest.mark.nightly

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
INDUCING, ROWS, CHECKS = 20, 128, (10, 50, 200)


@pytest.fixture
def small(monkeypatch):
    """The experiment with few inducing inputs and steps."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    names = ("bars", "bars_cases", "bars_table")
    modules = {name: importlib.import_module(name) for name in names}
    monkeypatch.setattr(modules["bars_cases"], "INDUCING", INDUCING)
    monkeypatch.setattr(modules["bars"], "ROWS", ROWS)
    monkeypatch.setattr(modules["bars"], "CHECKS", CHECKS)
    monkeypatch.setattr(modules["bars"], "SHORT", max(CHECKS))
    modules["bars"].bench.cache_clear()
    # Adam promotes inside Optax.
    with jax.numpy_dtype_promotion("standard"):
        yield SimpleNamespace(**modules)


def as_read(row):
    return {name: str(value) for name, value in row.items()}


def test_bars_hold_on_outliers_and_conjugate_models(small):
    outliers = small.bars_cases.Case("outliers", "Student-t", 0.05, start=None)
    conjugate = small.bars_cases.Case("noise of 1e-8", "Gaussian", 0.01, start=None)
    rows, whole = [], []
    for case, adams in ((outliers, ("Adam 0.1",)), (conjugate, ())):
        for is_whole, row in small.bars.runs(case, 0, set(), adams):
            (whole if is_whole else rows).append(as_read(row))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small.bars_table, "CHECKS", CHECKS)
        groups = small.bars_table.grouped(rows, whole)
    runs, exact = groups
    assert not any(
        group.is_failed(row) for group in groups for row in group.of("fixed", "guarded")
    )
    assert float(exact.whole[0]["gap_1"]) <= 1e-9
    assert int(runs.whole[0]["to_1e-6"]) <= 20
    for check, bar in ((10, 1), (50, 1), (200, 0.5)):
        assert runs.ratio(check, "paper 5") <= bar
        assert exact.ratio(check, "paper 5") <= bar
    assert runs.middle_gap("guarded", 50) < runs.best_adam(200)
    for row in runs.of("fixed", "guarded"):
        assert 1 + int(row["tests"]) / int(row["steps"]) <= 2.1
        assert math.isfinite(float(row["elbo_200"]))


def test_the_runs_are_those_of_fit(small):
    case = small.bars_cases.Case("outliers", "Student-t", 0.05)
    x, y = small.bars_cases.load(case, 0)
    model = small.bars_cases.model_of(case, 1.0, x, 0)
    fitted = gp.fit(
        model, (x, y), batch_size=ROWS, seed=3, steps=20, log_every=20, progress=False
    ).params
    tools = small.bars.bench(case, len(y))
    rule, rate = tools.joint["default"]
    places = jnp.asarray(Arrays((x, y), ROWS, 3).places(0, 20))
    data = small.bars.Data(jnp.asarray(x), jnp.asarray(y))
    ours, _, wrong = tools.advance(
        rule, model, rule.init(model), data, places, 0, 20, rate, 20.0
    )
    assert not wrong
    arrays = zip(*map(jax.tree.leaves, (ours, fitted)), strict=True)
    for here, there in arrays:
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-9)
    assert not eqx.tree_equal(ours, model)
