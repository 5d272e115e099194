"""Makes the fixtures that other libraries answer: `python make_peers.py [--keep DIR]`.

Every library gets a virtual environment of its own, in a temporary directory that is
deleted at the end. With `--keep` the environments are made in the given directory,
left there, and used again by the next run. Pip is told of other indexes by its own
settings, such as PIP_EXTRA_INDEX_URL for builds of PyTorch without CUDA.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import problem


HERE = pathlib.Path(__file__).parent

# Each list is one call of pip: PyTorch goes first, or its newest version comes along.
PEERS = {
    "gpflow": [
        [
            "gpflow==2.11.2",
            "tensorflow==2.21.0",
            "tf-keras==2.21.0",
            "tensorflow-probability==0.25.0",
            "numpy==1.26.4",
            "scipy==1.17.1",
            "setuptools<81",  # GPflow imports pkg_resources, which later ones lack
        ]
    ],
    "gpytorch": [
        ["torch==2.13.0", "numpy==2.4.6"],
        ["torch==2.13.0", "gpytorch==1.15.2", "linear_operator==0.6.1"],
    ],
    "sklearn": [["scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1"]],
}


def make_environment(directory: pathlib.Path, calls: list[list[str]]) -> pathlib.Path:
    """The interpreter of an environment that holds the packages."""
    python = directory / "bin" / "python"
    done = directory / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", directory], check=True)
        for packages in calls:
            pip = [python, "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *packages], check=True)
        done.touch()
    return python


def ask(python: pathlib.Path, peer: str) -> dict:
    """Runs the worker of a peer, which writes its fixture and says what made it."""
    # One thread, so that sums are taken in one order.
    threads = dict.fromkeys(
        [
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "TF_NUM_INTRAOP_THREADS",
            "TF_NUM_INTEROP_THREADS",
        ],
        "1",
    )
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.check_output(
        [
            python,
            HERE / f"worker_{peer}.py",
            HERE / "problem.npz",
            HERE / f"{peer}.npz",
        ],
        env=os.environ | threads | quiet,
        text=True,
    )
    return json.loads(said.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    keep = parser.parse_args().keep
    arrays: dict[str, Any] = problem.make_problem()
    np.savez_compressed(HERE / "problem.npz", **arrays)
    settings = {
        "kernels": problem.KERNELS,
        "likelihoods": problem.LIKELIHOODS,
        "relative_jitter": problem.RELATIVE_JITTER,
        "batch": problem.BATCH,
        "steps": problem.STEPS,
        "step_sizes": problem.STEP_SIZES,
    }
    about = {}
    with tempfile.TemporaryDirectory() as temporary:
        for peer, calls in PEERS.items():
            directory = (keep or pathlib.Path(temporary)).resolve() / peer
            about[peer] = ask(make_environment(directory, calls), peer)
    text = json.dumps({"settings": settings, "peers": about}, indent=2)
    (HERE / "peers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
