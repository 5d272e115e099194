"""Importing natgrad is cheap, and brings in nothing that is optional."""

import os
import subprocess
import sys
from importlib import metadata


BASE = "import jax, optax, equinox"
CORE = "import natgrad; natgrad.families, natgrad.natural_gradient, natgrad.guarded_ngd"
OPTIONAL = {
    *("sklearn", "pyarrow", "pandas", "polars", "matplotlib", "numpyro", "click"),
    *("tqdm", "onnx"),
    *("flax", "tinygp"),
}


def run(code: str) -> str:
    # Neither with the tests' settings nor measuring coverage.
    ours = ("XLA_FLAGS", "COVERAGE")
    clean = {key: os.environ[key] for key in os.environ if not key.startswith(ours)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=clean, check=True, capture_output=True, text=True
    ).stdout


def test_the_core_adds_little_to_what_it_stands_on():
    clock = "start = time.process_time()"
    took = "print(time.process_time() - start)"
    code = "\n".join(["import time", clock, BASE, took, clock, CORE, took])
    shares = []
    for _ in range(5):  # the least: a busy machine may slow either part
        base, ours = map(float, run(code).split())
        shares.append(ours / base)
    assert min(shares) <= 0.15, shares


def test_importing_natgrad_imports_no_optional_package():
    loaded = run("import natgrad.gp, natgrad.train, sys; print(*sys.modules)").split()
    assert not OPTIONAL & set(loaded)


def test_names_are_imported_when_they_are_used():
    loaded = run("import natgrad, sys; print(*dir(natgrad), *sys.modules)").split()
    assert {"ngd", "fit", "gp"} <= set(loaded)
    assert not {"jax", "natgrad._optim"} & set(loaded)
    names = "import natgrad; [getattr(natgrad, n) for n in natgrad._HOMES]"
    run(f"{names}; import jax; assert natgrad.fit is natgrad.train._loop.fit")


def test_the_version_is_that_of_the_installed_package():
    code = "import natgrad, sys; print(natgrad.__version__, *sys.modules)"
    version, *loaded = run(code).split()
    assert version == metadata.version("natgrad")
    assert "jax" not in loaded
