"""Importing natgrad is cheap, and brings in nothing that is optional."""

import os
import statistics
import subprocess
import sys


BASE = "import jax, optax, equinox"
CORE = "import natgrad; natgrad.families, natgrad.natural_gradient, natgrad.guarded_ngd"
OPTIONAL = {
    *("sklearn", "pyarrow", "pandas", "polars", "matplotlib", "numpyro", "click"),
    *("tqdm", "orbax", "tensorstore", "onnx", "mlflow", "tensorboardX"),
}


def run(code: str) -> str:
    # Neither with the tests' settings nor measuring coverage.
    ours = ("XLA_FLAGS", "COVERAGE")
    clean = {key: os.environ[key] for key in os.environ if not key.startswith(ours)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=clean, check=True, capture_output=True, text=True
    ).stdout


def cpu_seconds(code: str) -> float:
    return float(run(f"{code}\nimport time; print(time.process_time())"))


def test_the_core_adds_little_to_what_it_stands_on():
    ratios = []
    for _ in range(3):  # in turns, so that a busy machine slows both
        base, ours = cpu_seconds(BASE), cpu_seconds(f"{BASE}\n{CORE}")
        ratios.append(ours / base)
    assert statistics.median(ratios) <= 1.15, ratios


def test_importing_natgrad_imports_no_optional_package():
    loaded = run("import natgrad.gp, natgrad.train, sys; print(*sys.modules)").split()
    assert not OPTIONAL & set(loaded)


def test_names_are_imported_when_they_are_used():
    loaded = run("import natgrad, sys; print(*dir(natgrad), *sys.modules)").split()
    assert {"ngd", "fit", "gp"} <= set(loaded)
    assert not {"jax", "natgrad.optim"} & set(loaded)
    names = "import natgrad; [getattr(natgrad, n) for n in natgrad._HOMES]"
    run(f"{names}; import jax; assert natgrad.fit is natgrad.train.loop.fit")
