"""Solves and factors of one matrix at a time against jaxlib's batched ones.

    python benchmarks/solves.py              # results/solves.md
    python benchmarks/solves.py --rounds 3 --sizes 30 100

Ratios of times, natgrad's over jaxlib's, from interleaved rounds in one process with
one BLAS thread; the median of the rounds. Below 1 natgrad is faster. NPROC is 16 here,
because jaxlib's batched solves may not return with as many threads as two cores have.
"""

import argparse
import os
import statistics
import time
from pathlib import Path


os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
os.environ.update(NPROC="16", PJRT_NPROC="16")

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from natgrad.linalg import cholesky, solve_lower


RESULTS = Path(__file__).parent / "results"
LARGEST = 6e9
"""Cases with more multiplications than this are left out."""


def slope_of(factor, solve):
    """The derivative of a Gaussian density's exponent and normalizer."""

    def value(matrix, columns):
        root = factor(matrix)
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        return (solve(root, columns) ** 2).sum() + jnp.log(diagonal).sum()

    return jax.grad(value)


plain = lambda root, columns: solve_triangular(root, columns, lower=True)
CASES = {
    "Cholesky factor": (lambda m, x: cholesky(m), lambda m, x: jnp.linalg.cholesky(m)),
    "solve, one column": (lambda m, x: solve_lower(m, x[..., :1]),)
    + (lambda m, x: plain(m, x[..., :1]),),
    "solve, M columns": (solve_lower, plain),
    "both, differentiated": (
        slope_of(cholesky, solve_lower),
        slope_of(jnp.linalg.cholesky, plain),
    ),
}


def ratio(pair, arrays, rounds: int) -> float:
    """Natgrad's time over jaxlib's, the median of interleaved rounds."""
    ours, theirs = (jax.jit(function) for function in pair)
    seconds = {ours: [], theirs: []}
    for function in (ours, theirs):
        np.testing.assert_allclose(
            np.sum(function(*arrays)), np.sum(theirs(*arrays)), rtol=1e-6, atol=1e-6
        )
    for _ in range(rounds):
        for function in (ours, theirs):
            start, calls = time.perf_counter(), 0
            while calls < 1 or time.perf_counter() - start < 0.05:
                jax.block_until_ready(function(*arrays))
                calls += 1
            seconds[function].append((time.perf_counter() - start) / calls)
    pairs = zip(seconds[ours], seconds[theirs], strict=True)
    return statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[30, 100, 300, 1000, 2000]
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 10, 50])
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    rows = []
    for size in args.sizes:
        for batch in args.batches:
            if batch * size**3 > LARGEST and batch > 1:
                continue
            rng = np.random.default_rng(0)
            root = np.tril(rng.standard_normal((batch, size, size))) / size
            root += np.eye(size)
            matrix = jnp.asarray(root @ np.swapaxes(root, -1, -2))
            columns = jnp.asarray(rng.standard_normal((batch, size, size)))
            given = {name: matrix for name in CASES}
            given |= {name: jnp.asarray(root) for name in CASES if name[:5] == "solve"}
            cells = [
                f"{ratio(pair, (given[name], columns), args.rounds):.2f}"
                for name, pair in CASES.items()
            ]
            rows.append([str(size), str(batch), *cells])
            print(" | ".join(rows[-1]), flush=True)
    lines = [
        f"`python benchmarks/solves.py --rounds {args.rounds}`: natgrad's time over "
        "jaxlib's batched one.",
        "",
        "| M | batch | " + " | ".join(CASES) + " |",
        "|" + "---|" * (2 + len(CASES)),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    (RESULTS / "solves.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
