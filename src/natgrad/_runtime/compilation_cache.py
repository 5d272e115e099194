"""A cache of compiled programs on disk, for the estimators and the command.

JAX has one, but it writes files in place and does not verify or delete them. natgrad
therefore gives JAX a folder of its own for each process. It starts with hard links to
the entries of a shared folder, and new entries are linked back when they are complete.
The name of a shared entry ends with its digest. natgrad deletes one that differs.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from natgrad._runtime.cache_folder import cache_folder
from natgrad._runtime.process_setting import ProcessSetting


LIMIT = 64 * 2**20
"""Bytes of entries; beyond it the oldest are deleted."""

STALE_SECONDS = 24 * 3600
"""Age at which the folder of a killed process is deleted."""

OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    # Otherwise every key depends on the folder, which is new in every process.
    "jax_persistent_cache_enable_xla_caches": "none",
}
"""Settings of JAX while the cache is enabled: every program is cached."""

_previous: dict[str, Any] = {}
_published: set[str] = set()


def folder() -> Path | None:
    """The shared folder; none if NATGRAD_COMPILATION_CACHE is set but empty."""
    given = os.environ.get("NATGRAD_COMPILATION_CACHE")
    if given is not None:
        return Path(given) if given else None
    return cache_folder(sys.platform, Path.home()) / "compiled"


def _enable() -> None:
    config: Any = jax.config
    is_free = config.jax_enable_compilation_cache and (
        not config.jax_compilation_cache_dir
    )
    shared = folder() if is_free else None
    own = None if shared is None else _own_folder(shared)
    if own is None:
        return
    options = {"jax_compilation_cache_dir": str(own), **OPTIONS}
    for name, value in options.items():
        _previous[name] = getattr(config, name)
        config.update(name, value)
    compilation_cache.reset_cache()


def _disable() -> None:
    if not _previous:
        return
    config: Any = jax.config
    own = Path(config.jax_compilation_cache_dir)
    for name, value in _previous.items():
        config.update(name, value)
    _previous.clear()
    compilation_cache.reset_cache()
    with contextlib.suppress(OSError):
        _publish(own, own.parent)


_cache = ProcessSetting(_enable, _disable)


def enabled() -> contextlib.AbstractContextManager[None]:
    """Caches what is compiled inside, unless JAX has a cache folder already."""
    return _cache.held()


@functools.cache
def _own_folder(shared: Path) -> Path | None:
    """This process's folder, linked to all valid entries; none if there can be none."""
    try:
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Entries are machine code: nobody else may have written them.
        if hasattr(os, "getuid"):
            found = shared.stat()
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                return None
        if shutil.disk_usage(shared).free < 4 * LIMIT:
            return None
        _delete_stale(shared)
        own = Path(tempfile.mkdtemp(prefix="process-", dir=shared))
    except OSError:
        return None
    atexit.register(_remove, own, os.getpid())
    for entry in shared.glob(f"{_platform()}.*"):
        with contextlib.suppress(OSError):
            key, digest = _parts(entry)
            if _digest(entry.read_bytes()) == digest:
                os.link(entry, own / key)
                _published.add(key)
            else:
                entry.unlink(missing_ok=True)
    return own


def _remove(own: Path, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(own, ignore_errors=True)


def _delete_stale(shared: Path) -> None:
    """Deletes the folders of processes that were killed."""
    for each in shared.glob("process-*"):
        with contextlib.suppress(OSError):
            if time.time() - each.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(each, ignore_errors=True)


def _publish(own: Path, shared: Path) -> None:
    """Links the new entries of this process into the shared folder."""
    fresh = {each.name for each in own.glob("*-cache")} - _published
    for key in fresh:
        _published.add(key)
        digest = _digest((own / key).read_bytes())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(own / key, shared / f"{_platform()}.{key}.{digest}")
    if fresh:
        _evict(shared)


def _parts(entry: Path) -> tuple[str, str]:
    """The name that JAX gave an entry, and its digest."""
    key, _, digest = entry.name.partition(".")[2].rpartition(".")
    return key, digest


def _evict(shared: Path) -> None:
    """Deletes the oldest entries until the rest are within the limit."""
    entries = []
    for entry in shared.glob("*.*-cache.*"):
        with contextlib.suppress(OSError):
            found = entry.stat()
            entries.append((found.st_mtime, found.st_size, entry))
    total = 0
    for _, size, entry in sorted(entries, reverse=True):
        total += size
        if total > LIMIT:
            entry.unlink(missing_ok=True)


@functools.cache
def _platform() -> str:
    """A digest of the versions and of the processor, which JAX does not compare."""
    parts = [metadata.version(name) for name in ("jax", "jaxlib")]
    parts += [platform.machine(), platform.processor(), sys.version]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += [line for line in lines if line.startswith(("flags", "Features"))][:1]
    return _digest("\n".join(parts).encode())[:16]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
