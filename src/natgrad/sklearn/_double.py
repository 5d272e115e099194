"""Estimators compute in 64 bits, whatever a user's settings of JAX are."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from natgrad._runtime import compilation_cache
from natgrad._runtime.threads import few_threads, largest


def in_double(method: Callable[..., Any]) -> Callable[..., Any]:
    """Computes in float64; other threads keep your settings of JAX."""

    @functools.wraps(method)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        compilation_cache.use_folder()
        model = getattr(arguments[0], "model_", None) if arguments else None
        with (
            few_threads(largest(model)),
            jax.enable_x64(True),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            return method(*arguments, **keywords)

    return wrapped
