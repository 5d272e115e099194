"""Options of XLA's compiler, which take effect only in programs called from Python.

Most of what a first fit waits for on a CPU is compiling. The options of jax 0.10 make
that shorter without slowing the steps; jax 0.12 no longer has the first of them.
"""

from typing import Any

import jax


LONG_RUN: dict[str, Any] = {}
"""For programs that run for long."""

if jax.__version__.startswith("0.10."):
    LONG_RUN = {
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }

SHORT_RUN: dict[str, Any] = {**LONG_RUN, "xla_backend_optimization_level": 0}
"""For programs that run a few times. They compile faster and run slower."""
