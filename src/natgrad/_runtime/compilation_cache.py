"""The folder in which JAX keeps compiled programs, for the estimators and the command.

It is JAX's own cache: natgrad names a folder if you named none, and sets nothing else.
"""

import functools
import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from natgrad._runtime.cache_folder import cache_folder


def folder() -> Path | None:
    """The folder for this machine; none if NATGRAD_COMPILATION_CACHE is empty."""
    given = os.environ.get("NATGRAD_COMPILATION_CACHE")
    if given is not None:
        return Path(given) if given else None
    return cache_folder(sys.platform, Path.home()) / "compiled" / _machine()


@functools.cache
def use_folder() -> None:
    """Gives JAX the folder for the rest of the process, unless it has one."""
    config: Any = jax.config
    path = folder()
    is_free = config.jax_enable_compilation_cache and (
        not config.jax_compilation_cache_dir
    )
    if path is None or not is_free or not _is_ours(path):
        return
    config.update("jax_compilation_cache_dir", str(path))
    compilation_cache.reset_cache()  # JAX looks for a folder once, when it compiles


def _is_ours(path: Path) -> bool:
    """Whether nobody else may write there: entries are machine code."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _machine() -> str:
    """A digest of the versions and of the processor, which JAX does not compare."""
    parts = [metadata.version("jaxlib"), platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += [line for line in lines if line.startswith(("flags", "Features"))][:1]
    except OSError:
        pass
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
