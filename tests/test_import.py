"""Importing natgrad is cheap, and brings in nothing that is optional."""

import os
import statistics
import subprocess
import sys


BASE = "import jax, optax, equinox"
OPTIONAL = {
    *("sklearn", "pyarrow", "pandas", "polars", "matplotlib", "numpyro", "click"),
    *("tqdm", "orbax", "tensorstore", "onnx", "mlflow", "tensorboardX"),
}


def run(code: str) -> str:
    clean = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=clean, check=True, capture_output=True, text=True
    ).stdout


def cpu_seconds(code: str) -> float:
    return float(run(f"{code}\nimport time; print(time.process_time())"))


def test_importing_natgrad_adds_little_to_what_it_stands_on():
    ratios = []
    for _ in range(5):  # in turns, so that a busy machine slows both
        base, ours = cpu_seconds(BASE), cpu_seconds(f"{BASE}, natgrad")
        ratios.append(ours / base)
    assert statistics.median(ratios) <= 1.15, ratios


def test_importing_natgrad_imports_no_optional_package():
    loaded = run("import natgrad.gp, natgrad.train, sys; print(*sys.modules)").split()
    assert not OPTIONAL & set(loaded)
