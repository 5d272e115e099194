"""What `gp.rows.fit` costs: CPU seconds of a warm fit, a prediction, memory, compiling.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/rows_cost.py

Rows are made, with eight inputs. It writes results/rows_cost.md.
"""

import resource
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.linalg import get_lapack_funcs

from natgrad import gp
from natgrad.linalg._triangular import cholesky


SIZES = (1_000, 4_000, 41_000, 246_000, 1_000_000)
ROUNDS = 7


def made(rows: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 8))
    y = np.sin(2 * x[:, 0]) * np.cos(x[:, 1]) + 0.3 * x[:, 2]
    return x, y + 0.2 * random.standard_normal(rows)


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    began = time.process_time()
    found = function(*arguments)
    return time.process_time() - began, found


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cholesky_ratio() -> float:
    """Of the batched Cholesky factor to LAPACK's, in interleaved rounds."""
    random = np.random.default_rng(0)
    roots = random.standard_normal((256, 64, 64))
    matrices = roots @ roots.transpose(0, 2, 1) / 64 + np.eye(64)
    (bare,) = get_lapack_funcs(("potrf",), (matrices[0],))
    batched = jax.jit(cholesky)
    ours = lambda: batched(matrices).block_until_ready()
    theirs = lambda: [bare(matrix.T, lower=1) for matrix in matrices]
    ours()
    ratios = [timed(ours)[0] / timed(theirs)[0] for _ in range(ROUNDS)]
    return float(np.median(ratios))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    lines = ["# What a fit of rows costs", ""]
    new = made(5_000)[0]
    cold, _ = timed(gp.rows.fit, *made(1_000))
    warm, _ = timed(gp.rows.fit, *made(1_000))
    lines.append(f"First fit in a process, 1,000 rows: {cold - warm:.1f} s more")
    cold, fitted = timed(gp.rows.fit, *made(6_000))
    fitted.predict(new[:256])
    warm, fitted = timed(gp.rows.fit, *made(6_000))
    lines.append(f"First fit of more than 4,000 rows: {cold - warm:.1f} s more")
    sparse, _ = fitted.compact()
    compact = gp.predictor(sparse)
    compact.predict(new)
    seconds, _ = timed(compact.predict, new)
    lines.append(f"compact(): {1000 * seconds / len(new):.4f} ms a row")
    lines += [f"Batched Cholesky / LAPACK: {cholesky_ratio():.2f}", ""]
    lines += ["rows | fit, CPU s | latent, ms a row | predict, ms a row | more MB"]
    lines += ["---|---|---|---|---"]
    for rows in SIZES:
        x, y = made(rows)
        before = megabytes()
        seconds, fitted = timed(gp.rows.fit, x, y)
        more = megabytes() - before
        fitted.predict(new)
        lean, local = (timed(f, new)[0] / 5 for f in (fitted.latent, fitted.predict))
        lines.append(
            f"{rows:,} | {seconds:.1f} | {lean:.3f} | {local:.3f} | {more:.0f}"
        )
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "results" / "rows_cost.md").write_text(text)


if __name__ == "__main__":
    main()
