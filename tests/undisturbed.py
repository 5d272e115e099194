"""What natgrad must leave alone in the process that it runs in."""

import contextlib
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
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
    known = {k: v for k, v in jax.config.values.items() if k != ALLOWED}
    # A thread has its own value of some settings, and others have no attribute.
    return found | {k: getattr(jax.config, k, v) for k, v in known.items()}


@contextlib.contextmanager
def undisturbed():
    """A block that leaves its process alone, as a second thread sees it throughout."""
    users = jax.jit(lambda x: 2 * x)
    users(np.ones(3))
    with ThreadPoolExecutor(1) as other:
        before = other.submit(settings).result()
    changes, is_over = dict[str, Any](), threading.Event()

    def look() -> None:
        now = settings()
        changes.update({k: v for k, v in now.items() if v != before[k]})

    def watch() -> None:
        while not is_over.wait(0.02):
            look()
        look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    assert changes == {}
    assert users._cache_size() == 1, "a program of the user's was dropped"
