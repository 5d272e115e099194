"""The examples show what they claim to show."""

import importlib.util
import os
from pathlib import Path

import jax
import numpy as np
import pytest


EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def as_a_user_runs_them(monkeypatch):
    # Adam promotes inside Optax, and the examples broadcast as plain JAX allows.
    monkeypatch.setenv("MPLBACKEND", "agg")
    plain = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with jax.enable_x64(True), plain[0], plain[1]:
        yield


@pytest.mark.nightly
@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
def test_guarded_steps_need_a_tenth_of_the_iterations_of_adam(tmp_path):
    example = load("logistic_regression")
    result = example.main(tmp_path / "figure.png", adam_steps=500)
    adams = [result.iterations(f"adam({rate})", 1e-6) for rate in example.RATES]
    natural = result.iterations("guarded_ngd", 1e-6)
    assert natural <= 10
    assert min(count for count in adams if count is not None) > 10 * natural
    assert result.between_paths < 1e-9
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_pima_is_asked_for_by_name_when_it_is_missing(tmp_path, monkeypatch):
    example = load("logistic_regression")
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"pima\.parquet"):
        example.main()
    monkeypatch.delenv("NATGRAD_DATA")
    with pytest.raises(SystemExit, match="NATGRAD_DATA"):
        example.main()


def test_natural_steps_of_size_one_are_coordinate_ascent(tmp_path):
    result = load("mixture_of_multinomials").main(tmp_path / "figure.png", sweeps=25)
    assert result.difference <= 1e-10
    assert np.diff(result.bounds).min() >= -1e-9
    assert np.abs(result.topics - result.true_topics).max() < 0.1
    assert (tmp_path / "figure.png").stat().st_size > 0


@pytest.mark.nightly
def test_a_guarded_network_is_between_the_best_adam_and_the_rest(tmp_path):
    """Adam at its best rate is better here; the margin is 0.3 nats a datum."""
    result = load("bayesian_network").main(tmp_path / "figure.png", 300, starts=2)
    last = {name: losses[:, -1].mean() for name, losses in result.losses.items()}
    assert last["guarded_ngd"] < last["adam(0.03)"] < last["adam(0.01)"]
    assert last["guarded_ngd"] < last["adam(0.1)"] + 0.3 * 100
    assert (tmp_path / "figure.png").stat().st_size > 0


@pytest.mark.nightly
def test_a_run_that_was_stopped_and_resumed_is_the_same_run(tmp_path):
    result = load("training").main(tmp_path / "figure.png")
    assert result.difference == 0
    assert np.abs(result.weights - result.true_weights).max() < 0.2
    scores = result.history.column("score")
    assert max(scores) > 0.3 > scores[0]
    assert (tmp_path / "figure.png").stat().st_size > 0
