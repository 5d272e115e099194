"""What the loop costs over the bare compiled scan of the same step.

    python benchmarks/loop.py --out benchmarks/results

M = 100 and batches of 256 rows of 10,000, 5,000 steps to a run. `bare` is one jitted
scan over rows drawn beforehand, with nothing to see and nothing kept; `loop` is
`gp.fit` with its progress bar, written to a terminal that nobody looks at, and its
history; the last is the same with a checkpoint every ten seconds. One process, one
thread, in interleaved rounds; the ratios are of CPU time and of wall-clock time, per
round, after one round that compiles. Medians and quartiles over the rounds.
"""

import os


os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NPROC="1")
os.environ["PJRT_NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import argparse  # noqa: E402
import pty  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

from natgrad import gp  # noqa: E402
from natgrad.data import Arrays, Batch  # noqa: E402
from natgrad.gp._fit import default_rule  # noqa: E402


jax.config.update("jax_enable_x64", True)

ROWS, WIDTH, INDUCING, BATCH = 10_000, 8, 100, 256


def workload() -> tuple[gp.SparseGP, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH))
    y = np.sin(2 * x).sum(1) / 2 + 0.3 * rng.standard_t(4, ROWS)
    return gp.initialize(x[:2000], gp.likelihoods.StudentT(0.3), INDUCING), x, y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    steps = arguments.steps
    model, x, y = workload()
    source = Arrays(Batch(x, y), BATCH)
    rule = default_rule(source.num_data, source.fraction)
    data = Batch(jnp.asarray(x), jnp.asarray(y))
    places = jnp.asarray(source.places(0, steps))

    @jax.jit
    def scanned(carry, data, places):
        def body(carry, here):
            number, place = here
            batch = jax.tree.map(lambda column: column[place], data)
            *carry, loss = rule.step(*carry, batch, progress=number / steps)
            return tuple(carry), loss

        return lax.scan(body, carry, (jnp.arange(steps, dtype=float), places))

    def bare():
        (model_now, _), _ = scanned((model, rule.init(model)), data, places)
        return jax.block_until_ready(model_now)

    def loop():
        return gp.fit(model, (x, y), steps=steps).params

    def checkpointed():
        folder = tempfile.mkdtemp()
        fitted = gp.fit(model, (x, y), steps=steps, checkpoint=folder)
        shutil.rmtree(folder)
        return fitted.params

    watch_a_terminal()
    contenders = {"bare": bare, "loop": loop, "checkpoint every 10 s": checkpointed}
    for name, run in contenders.items():  # compiles
        leaves = [jax.tree.leaves(run()), jax.tree.leaves(bare())]
        worst = max(float(jnp.abs(a - b).max()) for a, b in zip(*leaves, strict=True))
        print(f"{name}: largest difference from bare {worst:.1e}", flush=True)
    spent = {name: [] for name in contenders}
    for _ in range(arguments.rounds):
        for name, run in contenders.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            spent[name].append((cpu, wall))
    lines = ["| | CPU ms per step | CPU / bare | wall / bare |", "|---|---|---|---|"]
    base = np.array(spent["bare"])
    for name, times in spent.items():
        ratios = np.percentile(np.array(times) / base, [25, 50, 75], axis=0)
        cells = [f"{m:.3f} ({low:.3f} to {high:.3f})" for low, m, high in ratios.T]
        milliseconds = 1000 * np.median(np.array(times)[:, 0]) / steps
        lines.append(f"| {name} | {milliseconds:.2f} | {cells[0]} | {cells[1]} |")
    table = "\n".join(lines)
    print(table)
    if arguments.out is not None:
        command = f"python benchmarks/loop.py --rounds {arguments.rounds}"
        text = f"`{command} --steps {steps}`\n\n{table}\n"
        (arguments.out / "loop.md").write_text(text)


def watch_a_terminal() -> None:
    """Makes stderr a terminal, so that the bar is drawn, and reads what it shows."""
    ours, theirs = pty.openpty()
    sys.stderr = os.fdopen(theirs, "w")
    threading.Thread(target=lambda: drained(ours), daemon=True).start()


def drained(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass


if __name__ == "__main__":
    main()
