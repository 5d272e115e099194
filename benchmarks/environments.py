"""One virtual environment per library, with pinned versions, made when first needed.

natgrad's own is a copy of this checkout: a run uses the code as it was when the
environment was made. Delete its folder to make it again.
"""

import os
import subprocess
import sys
from pathlib import Path


REPOSITORY = Path(__file__).parents[1]
SHARED = ["scikit-learn==1.9.1", "scipy==1.17.1"]
JAX = ["jax==0.10.2", "jaxlib==0.10.2", "optax==0.2.8", "numpy==2.4.6"]
PACKAGES = {
    "natgrad": [
        *SHARED,
        *JAX,
        "equinox==0.13.8",
        "matplotlib==3.11.2",
        "pandas==3.1.1",
        "pyarrow>=18",
        f"{REPOSITORY}[sklearn]",
    ],
    "trees": [*SHARED, "lightgbm==4.6.0", "ngboost==0.5.6"],
    # This build of PyTorch runs on the processor; others bring gigabytes for GPUs.
    "gpytorch": [*SHARED, "torch==2.13.0", "gpytorch==1.15.2"],
    "gpflow": [
        "gpflow==2.11.2",
        "tensorflow==2.21.0",
        "tf-keras==2.21.0",
        "tensorflow-probability==0.25.0",
        "numpy==1.26.4",
        "scipy==1.17.1",
        "setuptools<81",  # GPflow imports pkg_resources
    ],
    "gpjax": [*JAX, "gpjax==1.0.0", "scipy==1.17.1"],
}


def cache() -> Path:
    default = Path.home() / ".cache" / "natgrad-benchmarks"
    return Path(os.environ.get("NATGRAD_BENCHMARKS", default))


def python_of(name: str) -> str:
    """The interpreter of an environment, which is made if it is missing."""
    folder = cache() / name
    python, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        print(f"making the environment {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(install, check=True)
        frozen = subprocess.run(
            [str(python), "-m", "pip", "freeze"], capture_output=True, text=True
        )
        done.write_text(frozen.stdout)
    return str(python)


def versions(name: str) -> dict[str, str]:
    """What is installed in an environment."""
    lines = (cache() / name / "complete").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)
