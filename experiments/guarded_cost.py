"""What a guarded step costs beside a plain one: CPU time, at M = 100 and B = 256.

    OPENBLAS_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false \
        python experiments/guarded_cost.py

Every step starts from the same q, on a Gaussian likelihood by quadrature, so that what
is tested is known: two sizes when the step is long, none when it is short. Cases are
interleaved, and the least and the median of the rounds are given. Results go to
results/guarded_cost.csv.
"""

import csv
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import small_gp

import natgrad
from natgrad._guarded import GuardedState


jax.config.update("jax_enable_x64", True)

INDUCING, ROWS, NUM_DATA, STEPS, ROUNDS = 100, 256, 10_000, 50, 11


def log_prob(f, y, scale):
    return -((y - f) ** 2 / scale**2 + jnp.log(2 * math.pi * scale**2)) / 2


rng = np.random.default_rng(0)
data = small_gp.Rows(
    jnp.asarray(0.3 * rng.standard_normal((ROWS, INDUCING))),
    jnp.full(ROWS, 0.1),
    jnp.asarray(rng.standard_normal(ROWS)),
)
likelihood = small_gp.by_quadrature(log_prob)


def loss(q: Any) -> Any:
    return small_gp.loss(q, data, likelihood, jnp.asarray(0.5), NUM_DATA)


def make(tx: optax.GradientTransformation, start: Any, clock: int):
    """Many steps from one place, at one time, as a compiled function."""
    tx = optax.with_extra_args_support(tx)
    first: Any = tx.init(start)
    if isinstance(first, GuardedState):
        first = first._replace(steps=jnp.asarray(clock))

    def body(_, carry):
        # Zero times the last result: each step waits for the one before.
        q, state = jax.tree.map(
            lambda begin, now: begin + (0 * now).astype(begin.dtype),
            (start, first),
            carry,
        )
        value, grads = jax.value_and_grad(loss)(q)
        updates, state = tx.update(
            grads, state, q, value=value, grad=grads, value_fn=loss
        )
        # A value that is missing would spread by the sum above.
        state = jax.tree.map(jnp.nan_to_num, state)
        return optax.apply_updates(q, updates), state

    zero = jax.tree.map(jnp.nan_to_num, (start, first))
    return jax.jit(lambda: jax.lax.fori_loop(0, STEPS, body, zero))


in_theta = small_gp.prior_in_theta(1, INDUCING)
in_moments = small_gp.prior(1, INDUCING)
fraction = ROWS / NUM_DATA
late = 10**7  # The step is so short by then that it is not tested.
cases = {
    ("plain", "Canonical(Full)"): make(natgrad.ngd(0.1), in_theta, 0),
    ("plain", "Moments(Sqrt)"): make(natgrad.ngd(0.1), in_moments, 0),
    **{
        (f"guarded, {kind}", place): make(natgrad.guarded_ngd(fraction), q, clock)
        for kind, clock in (("not tested", late), ("two tests", 0))
        for place, q in (("Canonical(Full)", in_theta), ("Moments(Sqrt)", in_moments))
    },
}
times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
for case, run in cases.items():
    _, state = jax.block_until_ready(run())
    if isinstance(state, GuardedState):
        print(*case, "tests:", state.tests, "size:", state.step_size)
for _ in range(ROUNDS):
    for case, run in cases.items():
        began = time.process_time()
        jax.block_until_ready(run())
        times[case].append(1e3 * (time.process_time() - began) / STEPS)

base = times["plain", "Canonical(Full)"]
path = Path(__file__).parent / "results" / "guarded_cost.csv"
with path.open("w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["step", "coordinates", "least_ms", "median_ms", "ratio_to_plain"])
    for (kind, place), ms in times.items():
        ratio = np.median(np.divide(ms, base))
        row = [f"{min(ms):.3f}", f"{np.median(ms):.3f}", f"{ratio:.2f}"]
        writer.writerow([kind, place, *row])
print(path.read_text())
