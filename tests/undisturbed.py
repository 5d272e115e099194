"""What natgrad must leave alone in the process that it runs in."""

import contextlib
import signal
import sys
import threading
from typing import Any

import jax
import numpy as np


ALLOWED = "jax_compilation_cache_dir"
"""The one setting of JAX that natgrad makes, once and only if the user made none."""


def settings() -> dict[str, Any]:
    """What a thread sees of the handlers, hooks and settings of its process."""
    found: dict[str, Any] = {str(n): signal.getsignal(n) for n in signal.Signals}
    found |= {"excepthook": sys.excepthook, "unraisable": sys.unraisablehook}
    found |= {"threads": threading.excepthook}
    names = [name for name in jax.config.values if name != ALLOWED]
    return found | {name: getattr(jax.config, name) for name in names}


@contextlib.contextmanager
def undisturbed():
    """A block that leaves its process alone, as a second thread sees it throughout."""
    users = jax.jit(lambda x: 2 * x)
    users(np.ones(3))
    seen: list[dict[str, Any]] = []
    is_over = threading.Event()

    def watch() -> None:
        seen.append(settings())
        is_begun.set()
        while not is_over.wait(0.002):
            seen.append(settings())
        seen.append(settings())

    is_begun, watcher = threading.Event(), threading.Thread(target=watch)
    watcher.start()
    is_begun.wait()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    for later in seen:
        assert {k: v for k, v in later.items() if v != seen[0][k]} == {}
    assert users._cache_size() == 1, "a program of the user's was dropped"
