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


# Options of XLA's compiler, which take effect only in programs called from Python. Most
# of what a first fit waits for on a CPU is compiling. The options of jax 0.10 make that
# shorter without slowing the steps; jax 0.12 no longer has the first of them.

LONG_RUN: dict[str, Any] = {}
"""For programs that run for long."""

if jax.__version__.startswith("0.10."):
    LONG_RUN = {
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }

SHORT_RUN: dict[str, Any] = {**LONG_RUN, "xla_backend_optimization_level": 0}
"""For programs that run a few times. They compile faster and run slower."""


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
    def called(*arguments: object, **keywords: object) -> Any:
        if programs._cache_size() > PROGRAMS:
            programs.clear_cache()
        return jitted(*arguments, **keywords)

    return called
