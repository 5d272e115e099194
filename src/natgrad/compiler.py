"""Options of XLA's compiler, for programs that Python calls and no other program does.

On a CPU most of what a first fit waits for is compiling. The options of jax 0.10 make
that shorter and no step slower; later versions have no use for them.
"""

from typing import Any

import jax


WELL: dict[str, Any] = {}
"""For programs that run long."""

if jax.__version__.startswith("0.10."):
    WELL = {
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }

QUICKLY: dict[str, Any] = {**WELL, "xla_backend_optimization_level": 0}
"""For programs that are called a few times: an eighth of the time to compile, and up to
twice the time to run."""
