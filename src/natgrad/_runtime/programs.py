"""How many compiled programs a process keeps.

JAX keeps every program that it has compiled. Each takes dozens of memory maps, and
Linux allows a process 65,530: after some hundred fits of new shapes, compiling would
end with "Cannot allocate memory".
"""

from pathlib import Path

import jax


MAPS = 5_000
"""How many more memory maps than after the last time make JAX drop its programs."""

_after: list[int] = []


def limit_programs() -> None:
    """Drops all compiled programs if they hold too many memory maps.

    Those that are needed again are compiled again, or read from the compilation cache.
    """
    count = memory_maps()
    if not _after:
        _after.append(count)
    if count > _after[-1] + MAPS:
        jax.clear_caches()
        _after[:] = [memory_maps()]


def memory_maps() -> int:
    """How many memory maps this process has, or 0 where the system does not say."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0
