"""Runs batches of natgrad's programs many times and counts those that never return.

    python experiments/hangs.py              # 200 runs: results/hangs.md
    python experiments/hangs.py --runs 20

Each run is a process of its own in the default environment: no thread variables, no XLA
flags. On two cores, jaxlib's batched triangular solves hung most of these cases before
natgrad solved one matrix at a time. A run that takes more than `--limit` seconds counts
as a hang.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path


RESULTS = Path(__file__).parent / "results"

COMMON = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, natgrad, optax
from natgrad import gp, linalg
from natgrad.families import gaussian
jax.config.update("jax_enable_x64", True)


def descend(mean, size, storage, steps=8):
    tx, target = natgrad.guarded_ngd(), gaussian.Moments(
        jnp.zeros(size), linalg.Sqrt(2 * jnp.eye(size)))
    loss = lambda q: target.kl(q)

    def step(carry, _):
        q, state = carry
        value, grad = jax.value_and_grad(loss)(q)
        updates, state = tx.update(grad, state, q, value=value, value_fn=loss)
        return (optax.apply_updates(q, updates), state), value

    q = gaussian.Moments(jnp.full(size, mean), storage)
    return jax.lax.scan(step, (q, tx.init(q)), None, length=steps)[1][-1]


def many(size, number, storage=linalg.Sqrt):
    storage = storage(jnp.eye(size))
    means = jnp.linspace(0, 3, number)
    run = jax.jit(jax.vmap(lambda mean: descend(mean, size, storage)))
    values = run(means)
    assert np.isfinite(values).all()
"""

FITS = """
rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, (60, 1))
ys = rng.poisson(np.exp(np.sin(x[:, 0])), (20, 60)).astype(float)
z = np.linspace(-2, 2, 30)[:, None]


def fit(y):
    kernel, likelihood = gp.kernels.Matern52(1), gp.likelihoods.Poisson()
    model = gp.SparseGP(kernel, likelihood, jnp.asarray(z))
    batch = natgrad.data.Batch(jnp.asarray(x), y)
    tx = natgrad.guarded_ngd()

    def step(carry, _):
        q, state = carry
        at = lambda q: eqx.tree_at(lambda m: m.posterior, model, q)
        loss = lambda q: -gp.elbo(at(q), batch, 60)
        value, grad = jax.value_and_grad(loss)(q)
        updates, state = tx.update(grad, state, q, value=value, value_fn=loss)
        return (optax.apply_updates(q, updates), state), value

    q = model.posterior
    return jax.lax.scan(step, (q, tx.init(q)), None, length=5)[1][-1]
"""

CASES = {
    "vmap of 10 guarded fits, M = 50": "many(50, 10)",
    "vmap of 4 guarded fits, M = 50, matrix itself": "many(50, 4, linalg.Full)",
    "vmap of 3 guarded fits, M = 100": "many(100, 3)",
    "vmap of 4 guarded fits, M = 50, logarithm": "many(50, 4, linalg.Log)",
    "vmap of 20 Poisson GP fits, M = 30": FITS
    + "assert np.isfinite(jax.jit(jax.vmap(fit))(jnp.asarray(ys))).all()",
    "a batch of 10 Gaussians, M = 80, its gradients": """
roots = jnp.stack([jnp.eye(80) * (1 + i) for i in range(10)])
q = gaussian.Moments(jnp.ones((10, 80)), linalg.Full(roots))
loss = lambda q: (q.kl(q.at_natural(q.natural())) + q.entropy()).sum()
grad = jax.jit(lambda q: natgrad.natural_gradient(q, jax.grad(loss)(q)))(q)
assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grad))
""",
    "4 threads, each a vmap of 4 guarded fits, M = 50": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    jobs = [pool.submit(many, 50, 4) for _ in range(4)]
    [job.result() for job in jobs]
""",
    "GPClassifier, three classes, n_jobs = 2": """
from natgrad.sklearn import GPClassifier
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
x, y = load_iris(return_X_y=True)
model = GPClassifier(n_inducing=20, max_iter=20, verbose=False)
scores = cross_val_score(model, x, y, cv=2, n_jobs=2)
assert (scores > 0.8).all()
""",
}


def ended(code: str, limit: float) -> str:
    """How a program ended: well, with an error, or not at all."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "OMP_"))}
    for name in ("OPENBLAS_NUM_THREADS", "NPROC", "PJRT_NPROC"):
        kept.pop(name, None)
    command = [sys.executable, "-W", "ignore", "-c", COMMON + code]
    try:
        done = subprocess.run(command, env=kept, timeout=limit, capture_output=True)
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode:
        print(done.stderr.decode()[-2000:], flush=True)
    return "error" if done.returncode else "well"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds")
    parser.add_argument("--only", help="a part of a case's name")
    args = parser.parse_args()
    names = [name for name in CASES if args.only is None or args.only in name]
    counts = {name: {"well": 0, "error": 0, "hung": 0} for name in names}
    for run in range(args.runs):
        name = names[run % len(names)]
        start = time.perf_counter()
        how = ended(CASES[name], args.limit)
        counts[name][how] += 1
        print(
            f"{run + 1}: {name}: {how}, {time.perf_counter() - start:.0f} s", flush=True
        )
    lines = [
        f"`python experiments/hangs.py --runs {args.runs}`, on {os.cpu_count()} cores. "
        f"A run hung if it took more than {args.limit:g} seconds.",
        "",
        "| case | ended well | error | hung |",
        "|---|---|---|---|",
    ]
    for name, count in counts.items():
        lines.append(
            f"| {name} | {count['well']} | {count['error']} | {count['hung']} |"
        )
    total = {
        how: sum(c[how] for c in counts.values()) for how in ("well", "error", "hung")
    }
    lines.append(f"| all | {total['well']} | {total['error']} | {total['hung']} |")
    print("\n".join(lines))
    if args.only is None:
        (RESULTS / "hangs.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
