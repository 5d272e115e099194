"""What a natural gradient costs compared with the linear algebra that it needs.

    python benchmarks/cost.py [--sizes 100 500 2000] [--rounds 9] [--out FOLDER]

One thread, CPU time, interleaved rounds, medians; every figure is a ratio.
"""

import argparse
import csv
import os
import statistics
import time
from pathlib import Path


os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.scipy.linalg import solve_triangular
from scipy.linalg import blas, lapack

import natgrad
from natgrad.families import gaussian
from natgrad.linalg import Full, Log, Sqrt


jax.config.update("jax_enable_x64", True)


def timed(cases: dict, rounds: int) -> dict[str, float]:
    """The median CPU time of each case, all cases taking turns.

    A turn is as many calls as take some tens of milliseconds.
    """

    def turn(case, calls: int) -> float:
        start = time.process_time()
        for _ in range(calls):
            case()
        return (time.process_time() - start) / calls

    calls = {}
    for name, case in cases.items():
        case()
        calls[name] = max(1, int(0.03 / max(turn(case, 3), 1e-5)))
    times = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            times[name].append(turn(case, calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def compiled(function, *arguments):
    function = jax.jit(function)
    return lambda: jax.block_until_ready(function(*arguments))


# The calls that each parameterization cannot avoid, from SciPy and from JAX.


def bare_calls(matrix: np.ndarray) -> dict[str, tuple]:
    """One call of each kind: from SciPy, and the same one from JAX."""
    fortran = np.asfortranarray(matrix)
    root = np.asfortranarray(np.linalg.cholesky(matrix))
    a, l, x = jnp.asarray(matrix), jnp.asarray(root), jnp.asarray(matrix[0])
    vector = matrix[0].copy()
    return {
        "gemv": (lambda: blas.dgemv(1.0, fortran, vector), compiled(jnp.matmul, a, x)),
        "trsv": (
            lambda: blas.dtrsv(root, vector, lower=1),
            compiled(lambda l, x: solve_triangular(l, x, lower=True), l, x),
        ),
        "gemm": (lambda: blas.dgemm(1.0, fortran, fortran), compiled(jnp.matmul, a, a)),
        "trmm": (
            lambda: blas.dtrmm(1.0, root, fortran, lower=1),
            compiled(jnp.matmul, l, a),
        ),
        "trsm": (
            lambda: blas.dtrsm(1.0, root, fortran, lower=1),
            compiled(lambda l, a: solve_triangular(l, a, lower=True), l, a),
        ),
        "potrf": (
            lambda: lapack.dpotrf(fortran, lower=1),
            compiled(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), a),
        ),
        "syevd": (
            lambda: lapack.dsyevd(fortran, lower=1),
            compiled(jnp.linalg.eigh, a),
        ),
    }


CALLS = {
    "Moments(Full)": {"gemm": 2, "gemv": 1},
    "Moments(Sqrt)": {"trmm": 2, "gemv": 2},
    "Moments(Log)": {"syevd": 1, "gemm": 4, "gemv": 2},
    "Canonical(Full)": {"potrf": 1, "gemm": 2, "trsv": 2, "gemv": 2},
    "Canonical(Sqrt)": {"trmm": 2, "trsv": 3, "gemv": 4},
    "Canonical(Log)": {"syevd": 1, "gemm": 4, "gemv": 8},
    "slope -> Canonical(Full)": {"potrf": 1, "trsv": 2, "gemv": 1},
    "slope -> Moments(Sqrt)": {"trmm": 3, "gemv": 2},
}


def parameterizations(cov: np.ndarray, mean: np.ndarray) -> dict:
    cov, mean = jnp.asarray(cov), jnp.asarray(mean)
    precision = jnp.linalg.inv(cov)
    q = {}
    for name, storage in (("Full", Full(cov)), ("Sqrt", Sqrt(cov)), ("Log", Log(cov))):
        q[f"Moments({name})"] = gaussian.Moments(mean, storage.at(cov))
        linear = precision @ mean
        q[f"Canonical({name})"] = gaussian.Canonical(linear, storage.at(precision / 2))
    return q


def directions(size: int, rounds: int) -> list[dict]:
    """natural_gradient in each parameterization, and from a slope."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((size, size)) / np.sqrt(size)
    cov = root @ root.T + np.eye(size)
    mean = rng.standard_normal(size)
    cases, calls = {}, bare_calls(cov)
    for name, (scipy, bare_jax) in calls.items():
        cases[f"scipy {name}"], cases[f"jax {name}"] = scipy, bare_jax
    points = parameterizations(cov, mean)
    slope = gaussian.Statistics(jnp.asarray(mean), jnp.asarray(cov))
    for name, q in points.items():
        grad = jax.jit(jax.grad(lambda q: q.kl(standard(size))))(q)
        cases[name] = compiled(natgrad.natural_gradient, q, grad)
        if f"slope -> {name}" in CALLS:
            cases[f"slope -> {name}"] = compiled(natgrad.natural_gradient, q, slope)
    times = timed(cases, rounds)
    rows = []
    for name, needed in CALLS.items():
        row = {"M": size, "what": name, "ms": 1e3 * times[name]}
        row["calls"] = " + ".join(f"{n} {call}" for call, n in needed.items())
        for library in ("jax", "scipy"):
            bare = sum(n * times[f"{library} {call}"] for call, n in needed.items())
            row[f"ratio to {library}"] = times[name] / bare
        rows.append(row)
    return rows


def standard(size: int) -> gaussian.Moments:
    return gaussian.Moments(jnp.zeros(size), Sqrt(jnp.eye(size)))


# The paper's factor: a natural step on q against an ordinary one, in a sparse GP.


def sparse_gp(size: int, rows: int):
    """A whitened sparse GP classifier: its loss in q, and the slope of it."""
    rng = np.random.default_rng(1)
    x, z = (jnp.asarray(rng.standard_normal((n, 8))) for n in (rows, size))
    y = jnp.asarray(np.sign(rng.standard_normal(rows)))
    nodes, weights = np.polynomial.hermite.hermgauss(20)
    nodes, weights = (
        jnp.asarray(np.sqrt(2) * nodes),
        jnp.asarray(weights / np.sqrt(np.pi)),
    )
    scale = 100_000 / rows

    def kernel(a, b):
        squared = (a**2).sum(-1)[:, None] + (b**2).sum(-1) - 2 * a @ b.T
        r = jnp.sqrt(5 * jnp.maximum(squared, 1e-30) / 8)
        return 2 * (1 + r + r**2 / 3) * jnp.exp(-r)

    def features(x, z):
        root = jnp.linalg.cholesky(kernel(z, z) + 1e-6 * jnp.eye(size))
        return solve_triangular(root, kernel(z, x), lower=True)

    def fit(mean, var):
        f = mean[:, None] + jnp.sqrt(var)[:, None] * nodes
        return scale * (jax.nn.log_sigmoid(y[:, None] * f) @ weights).sum()

    def marginals(q, a):
        prior = 2 - (a**2).sum(0)
        if isinstance(q, gaussian.Canonical):
            half = q.quadratic.whiten(a) / np.sqrt(2)
        else:
            half = q.factor().T @ a
        return q.location() @ a, prior + (half**2).sum(0)

    def loss(q, x, z):
        """Minus the bound, its divergence from the standard normal written out."""
        trace = (q.factor() ** 2).sum() + (q.location() ** 2).sum()
        divergence = (trace - size - q.log_det()) / 2
        return divergence - fit(*marginals(q, features(x, z)))

    def slope(q, x, z):
        """(∂L/∂m, ∂L/∂S) by matrix products alone."""
        a = features(x, z)
        by_mean, by_var = jax.grad(fit, (0, 1))(*marginals(q, a))
        if isinstance(q, gaussian.Canonical):
            precision = 2 * q.quadratic.matrix()
        else:
            precision = q.cov.inverse()
        second = (jnp.eye(size) - precision) / 2 - (a * by_var) @ a.T
        return gaussian.Statistics(q.location() - a @ by_mean, second)

    return loss, slope, (x, z)


def steps(size: int, rows: int, rounds: int) -> list[dict]:
    """Natural steps against an ordinary one, each a whole step on a minibatch."""
    loss, slope, data = sparse_gp(size, rows)
    identity = jnp.eye(size)
    sqrt = gaussian.Moments(jnp.zeros(size), Sqrt(identity))
    canonical = gaussian.Canonical(jnp.zeros(size), Full(identity / 2))

    def stepper(tx, q, gradient):
        state = tx.init(q)

        def step(q, state, x, z):
            updates, state = tx.update(gradient(q, x, z), state, q)
            return optax.apply_updates(q, updates), state

        return compiled(step, q, state, *data)

    ordinary, grad = optax.adam(1e-2), jax.grad(loss)
    cases = {
        "ordinary, Moments(Sqrt)": stepper(ordinary, sqrt, grad),
        "natural by autodiff, Moments(Sqrt)": stepper(natgrad.ngd(0.1), sqrt, grad),
        "natural by autodiff, Canonical(Full)": stepper(
            natgrad.ngd(0.1), canonical, grad
        ),
        "natural from the slope, Moments(Sqrt)": stepper(natgrad.ngd(0.1), sqrt, slope),
        "natural from the slope, Canonical(Full)": stepper(
            natgrad.ngd(0.1), canonical, slope
        ),
    }
    times = timed(cases, rounds)
    base = times["ordinary, Moments(Sqrt)"]
    return [
        {"M": size, "B": rows, "what": name, "ms": 1e3 * t, "ratio": t / base}
        for name, t in times.items()
    ]


def show(rows: list[dict]) -> None:
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
        print(" | ".join(cells), flush=True)


def write(rows: list[dict], path: Path) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        for row in rows:
            table.writerow(
                {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500, 2000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    tables: dict[str, list[dict]] = {"directions": [], "steps": []}
    for size in arguments.sizes:
        found = directions(size, arguments.rounds)
        show(found)
        tables["directions"] += found
        for rows in (256, 1024):
            found = steps(size, rows, arguments.rounds)
            show(found)
            tables["steps"] += found
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            write(rows, arguments.out / f"cost_{name}.csv")


if __name__ == "__main__":
    main()
