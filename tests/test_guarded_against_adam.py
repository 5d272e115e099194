"""The README's counts of iterations are those its script finds."""

import importlib.util
import re
from pathlib import Path

import jax


ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "guarded_against_adam.py"


def load():
    spec = importlib.util.spec_from_file_location("guarded_against_adam", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_states_the_iterations_that_the_script_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    example = load()
    # Adam promotes inside Optax, and the example broadcasts as plain JAX allows.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        counts = example.main(tmp_path / "figure.png", adam_steps=150)
    guarded = counts.pop(example.GUARDED)
    best = min(count for count in counts.values() if count is not None)
    readme = (ROOT / "README.md").read_text("utf-8")
    stated = re.search(r"(\d+) iterations, against (\d+) for the best of five", readme)
    assert stated and (int(stated[1]), int(stated[2])) == (guarded, best)
    assert (tmp_path / "figure.png").stat().st_size > 0
