"""What is installed, on what machine, and whether it computes correctly."""

import os
import platform
import shutil
import sys
import time
from importlib import metadata, util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import natgrad
from natgrad._cli.common import table
from natgrad._cli.options import EXTRAS
from natgrad._runtime.programs import jit
from natgrad.datasets import _files as files
from natgrad.families.gaussian import Moments
from natgrad.linalg import Sqrt


PACKAGES = ("natgrad", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "XLA_FLAGS", "JAX_PLATFORMS"),
    *("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "NATGRAD_DATA"),
)
TOLERANCE = 1e-10


def examine() -> dict[str, Any]:
    """All that a bug report should have."""
    cores = os.cpu_count()
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    return {
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "extras": {extra: _version(*found) for extra, found in EXTRAS.items()},
        "devices": [str(device) for device in jax.devices()],
        "backend": jax.default_backend(),
        "cores": cores,
        "cores_allowed": len(os.sched_getaffinity(0)) if has_affinity else cores or 1,
        "variables": {
            name: os.environ[name] for name in VARIABLES if name in os.environ
        },
        "float64_by_default": bool(jax.config.read("jax_enable_x64")),
        "disk_free_bytes": shutil.disk_usage(".").free,
        "data_folder": str(files.folder()),
        "self_test": self_test(),
    }


def self_test(rows: int = 200, size: int = 20) -> dict[str, Any]:
    """One natural step of size 1 on a conjugate model, against its exact posterior.

    The model is y = Xw + ε with unit Gaussian prior and noise; there the step arrives
    wherever it begins, here at a Gaussian that is far from the posterior.
    """
    begun = time.monotonic()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, size))
    y = x @ rng.normal(size=size) + rng.normal(size=rows)
    precision = x.T @ x + np.eye(size)
    cov = np.linalg.inv(precision)
    mean = cov @ x.T @ y
    with jax.enable_x64(True):
        root = np.tril(rng.normal(size=(size, size))) / size + np.eye(size)
        q = Moments(jnp.asarray(rng.normal(size=size)), Sqrt(jnp.asarray(root)))
        moved = _step(q, jnp.asarray(x), jnp.asarray(y))
        errors = [
            np.abs(np.asarray(moved.location()) - mean).max() / np.abs(mean).max(),
            np.abs(np.asarray(moved.covariance()) - cov).max() / np.abs(cov).max(),
        ]
    error = float(max(errors))
    return {
        "relative_error": error,
        "tolerance": TOLERANCE,
        "passed": error <= TOLERANCE,
        "seconds": round(time.monotonic() - begun, 2),
    }


@jit
def _step(q: Any, x: jax.Array, y: jax.Array) -> Any:
    # Optax's own types know of arrays only, hence the Any.
    def loss(q: Moments) -> jax.Array:
        prior = Moments(jnp.zeros_like(q.mean), Sqrt(jnp.eye(len(q.mean))))
        misfit = jnp.sum((y - x @ q.mean) ** 2) + jnp.sum(x @ q.covariance() * x)
        return misfit / 2 + q.kl(prior)

    rule = natgrad.mirror_descent(1.0)
    updates, _ = rule.update(jax.grad(loss)(q), rule.init(q), q)
    return optax.apply_updates(q, updates)


def as_text(found: dict[str, Any]) -> str:
    """A report for a person."""
    test = found["self_test"]
    verdict = "passed" if test["passed"] else "FAILED"
    rows = dict(found["packages"])
    rows |= {
        "python": f"{found['python']} ({sys.executable})",
        "platform": found["platform"],
        "devices": f"{', '.join(found['devices'])} ({found['backend']})",
        "cores": f"{found['cores_allowed']} of {found['cores']}",
        "float64": "used by the estimators and by this command; "
        + ("on" if found["float64_by_default"] else "off")
        + " by default in JAX",
        "free disk": f"{found['disk_free_bytes'] / 2**30:,.1f} GiB here",
        "data sets": found["data_folder"],
    }
    extras = {
        extra: version or f'missing: pip install "natgrad[{extra}]"'
        for extra, version in found["extras"].items()
    }
    parts = [table(rows), "", "extras", table(extras, indent=2), ""]
    if found["variables"]:
        parts += ["environment", table(found["variables"], indent=2), ""]
    parts.append(
        f"self-test {verdict}: a natural step solves a conjugate model to "
        f"{test['relative_error']:.0e}, in {test['seconds']:.1f} s"
    )
    return "\n".join(parts)


def _version(package: str, module: str) -> str | None:
    try:
        if util.find_spec(module) is None:
            return None
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"
    except ModuleNotFoundError:  # of the package that the module is in
        return None
