"""Compiled programs, kept in the user's cache folder for the next process.

JAX can keep programs in a folder, but trusts what it finds there, writes in place and
never deletes. So each process has a folder of its own for JAX, which begins with links
to what the shared folder holds. What it compiles is then linked there: whole, under a
name with its digest. An entry that does not have its digest is deleted.
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
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any


LIMIT = 64 * 2**20
"""Bytes of programs that are kept; beyond it the oldest are deleted."""

ABANDONED = 24 * 3600
"""Seconds after which the folder of a process that was killed is deleted."""

OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    # Or the name of the folder, which no other process has, is part of each key.
    "jax_persistent_cache_enable_xla_caches": "none",
}
"""How JAX keeps programs."""

_lock = threading.Lock()
_users = 0
_restored: dict[str, object] = {}
_published: set[str] = set()


def cache_folder(system: str, home: Path) -> Path:
    """Where natgrad may keep what can be made again, by a platform's conventions."""
    if system == "darwin":
        return home / "Library" / "Caches" / "natgrad"
    if system == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "natgrad"
    # The standard has paths that are not absolute ignored.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else home / ".cache") / "natgrad"


def folder() -> Path | None:
    """Where programs are kept: NATGRAD_PROGRAMS, nowhere if that is empty."""
    given = os.environ.get("NATGRAD_PROGRAMS")
    if given is not None:
        return Path(given) if given else None
    return cache_folder(sys.platform, Path.home()) / "programs"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keeps what is compiled inside, unless its user has a folder for that already.

    The setting belongs to the whole process: the first to enter sets it, and the last
    to leave restores it.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _enter()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _leave()


def _jax() -> tuple[Any, Any]:
    """JAX's settings and its cache. Data sets need the folder, and no JAX."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    return jax.config, compilation_cache


def _enter() -> None:
    config, cache = _jax()
    is_free = config.jax_enable_compilation_cache and (
        not config.jax_compilation_cache_dir
    )
    shared = folder() if is_free else None
    own = None if shared is None else _own_folder(shared)
    if own is None:
        return
    options = {"jax_compilation_cache_dir": str(own), **OPTIONS}
    for name, value in options.items():
        _restored[name] = getattr(config, name)
        config.update(name, value)
    cache.reset_cache()


def _leave() -> None:
    if not _restored:
        return
    config, cache = _jax()
    own = Path(config.jax_compilation_cache_dir)
    for name, value in _restored.items():
        config.update(name, value)
    _restored.clear()
    cache.reset_cache()
    shared = folder()
    if shared is not None:
        with contextlib.suppress(OSError):
            _publish(own, shared)


@functools.cache
def _own_folder(shared: Path) -> Path | None:
    """The folder of this process, with links to all that can be trusted; or none."""
    try:
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Programs are run: nobody else may have put them there.
        if hasattr(os, "getuid"):
            found = shared.stat()
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                return None
        if shutil.disk_usage(shared).free < 4 * LIMIT:
            return None
        _sweep(shared)
        own = Path(tempfile.mkdtemp(prefix="process-", dir=shared))
    except OSError:
        return None
    atexit.register(_remove, own, os.getpid())
    for entry in shared.glob(f"{_machine()}.*"):
        with contextlib.suppress(OSError):
            key, digest = _parts(entry)
            if _digest(entry.read_bytes()) == digest:
                os.link(entry, own / key)
                _published.add(key)
            else:
                entry.unlink(missing_ok=True)
    return own


def _remove(own: Path, process: int) -> None:
    if os.getpid() == process:  # and not one that was forked from it
        shutil.rmtree(own, ignore_errors=True)


def _sweep(shared: Path) -> None:
    """Deletes what processes left that were killed."""
    for each in shared.glob("process-*"):
        with contextlib.suppress(OSError):
            if time.time() - each.stat().st_mtime > ABANDONED:
                shutil.rmtree(each, ignore_errors=True)


def _publish(own: Path, shared: Path) -> None:
    """Links what this process has compiled to where all find it, each at once."""
    fresh = {each.name for each in own.glob("*-cache")} - _published
    for key in fresh:
        _published.add(key)
        digest = _digest((own / key).read_bytes())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(own / key, shared / f"{_machine()}.{key}.{digest}")
    if fresh:
        _forget(shared)


def _parts(entry: Path) -> tuple[str, str]:
    """The name that JAX gave an entry, and its digest."""
    key, _, digest = entry.name.partition(".")[2].rpartition(".")
    return key, digest


def _forget(shared: Path) -> None:
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
def _machine() -> str:
    """What programs depend on beyond what JAX compares: versions, and the processor."""
    parts = [metadata.version(name) for name in ("jax", "jaxlib")]
    parts += [platform.machine(), platform.processor(), sys.version]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += [line for line in lines if line.startswith(("flags", "Features"))][:1]
    return _digest("\n".join(parts).encode())[:16]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
