"""The suite runs in 64 bits, and nothing is promoted behind our back."""

import os
import signal
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


def pytest_configure(config):
    """Keeps compiled programs in pytest's cache, as compiling takes most of the time.

    `-p no:cacheprovider` compiles everything anew, and `--cache-clear` deletes them.
    Processes that a test starts do not use them: it may kill one that is writing.
    """
    # A shell ignores Ctrl-C for what it starts in the background, and so would the
    # processes that tests start and interrupt.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "cache") or jax.config.jax_compilation_cache_dir:
        return
    jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(autouse=True, scope="module")
def forgetful():
    """What one module has compiled is of no use to the next, and fills the memory."""
    yield
    jax.clear_caches()
