"""The suite runs in 64 bits, and nothing is promoted behind our back."""

import os
from importlib import metadata


# Programs are tiny and run a few times: what costs is compiling them, and cutting them
# into parts for many threads. The last two flags only some versions of the compiler
# know.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        if metadata.version("jaxlib").startswith("0.10.")
        else "",
    ]
)

# The estimators use no compilation cache unless the caller names one.
os.environ.setdefault("NATGRAD_COMPILATION_CACHE", "")

import jax
import pytest


jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(autouse=True, scope="module")
def forgetful():
    """What one module has compiled is of no use to the next, and fills the memory."""
    yield
    jax.clear_caches()
