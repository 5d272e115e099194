"""`jit` for natgrad's own functions, which keep a few compiled programs each.

JAX keeps every program that it has compiled. Each takes dozens of memory maps, and
Linux allows a process 65,530: after some hundred fits of new shapes, compiling would
end with "Cannot allocate memory". natgrad drops programs of its own, and no others.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


PROGRAMS = 16
"""How many programs a function keeps: a fit needs a few of each, at most."""


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` with a limit on programs."""
    jitted = jax.jit(function, **options)
    return _limited(function, jitted, jitted)


def filter_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`equinox.filter_jit` with a limit on programs and with options of `jax.jit`."""
    wrapper: Any = eqx.filter_jit
    jitted = wrapper(function, **options)
    return _limited(function, jitted, jitted._cached)


def _limited(function: Any, jitted: Any, programs: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        if programs._cache_size() > PROGRAMS:
            programs.clear_cache()
        return jitted(*arguments, **keywords)

    return called
