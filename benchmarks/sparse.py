"""What a step of the sparse GP costs, against the same step written by hand.

    python benchmarks/sparse.py --out benchmarks/results

Everything is measured in one process with one thread, in CPU time, in interleaved
rounds; ratios are medians over the rounds, with their quartiles. `bare` is the faster
of the two ways of benchmarks/bare.py at each size. Memory is the peak of a fresh
process that takes three steps; beside it, what XLA sets aside for the compiled call.
The batch has 256 rows for `small` and 1024 for the others. `gp.fit` is its step on
batches with nothing set. The last two ratios are of steps on q alone, in the
coordinates (m, Cholesky factor of S): the natural gradient (`ngd`) and the step in θ
(`mirror_descent`) against Adam.
"""

import os


os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NPROC="1")
os.environ["PJRT_NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import argparse  # noqa: E402
import csv  # noqa: E402
import functools  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import bare  # noqa: E402
import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402

import natgrad  # noqa: E402
from natgrad.data import Batch  # noqa: E402
from natgrad.gp import SparseGP, alternating, kernels, likelihoods  # noqa: E402
from natgrad.gp._fit import default_rule  # noqa: E402
from natgrad.gp._sparse import projected_elbo  # noqa: E402


SHAPES = {
    "small": {"width": 8, "rows": 768, "inducing": 100, "batch": 256},
    **{
        f"M = {m}": {"width": 8, "rows": 20_000, "inducing": m, "batch": 1024}
        for m in (100, 200, 500, 1000, 2000)
    },
    "mnist": {"width": 784, "rows": 10_000, "inducing": 100, "batch": 1024},
}


def workload(name: str) -> dict[str, Any]:
    """Data of a shape, and where the model starts."""
    shape = SHAPES[name]
    rng = np.random.default_rng(0)
    rows, width, m = shape["rows"], shape["width"], shape["inducing"]
    if name == "mnist":  # bright where one pixel in five is
        x = rng.random((rows, width)) * (rng.random((rows, width)) < 0.2)
    else:
        x = rng.standard_normal((rows, width))
    f = np.sin(2 * x @ rng.standard_normal((width, 10)) / np.sqrt(width))
    z = x[rng.choice(rows, m, replace=False)] + 0.01 * rng.standard_normal((m, width))
    common = {"x": x, "z": z, "lengthscale": np.sqrt(width), "rate": 1e-3}
    if name == "mnist":
        # Robust-max is not log-concave, and a long first step would leave the family.
        kind = {"likelihood": "robust-max", "latents": 10, "size": 1e-6}
        return {**common, **kind, "y": f.argmax(1), "variance": 10.0, **shape}
    y = (f[:, 0] + 0.3 * rng.standard_normal(rows) > 0).astype(float)
    kind = {"likelihood": "Bernoulli", "latents": None, "size": 0.05}
    return {**common, **kind, "y": y, "variance": 2.0, **shape}


def model_of(data: dict[str, Any]) -> SparseGP:
    kernel = kernels.Matern52(data["lengthscale"], data["variance"])
    if data["likelihood"] == "Bernoulli":
        return SparseGP(kernel, likelihoods.Bernoulli(), data["z"])
    return SparseGP(kernel, likelihoods.RobustMax(10), data["z"])


def looped(step: Any, data: dict[str, Any], steps: int) -> Any:
    """A compiled call of many steps on random batches."""

    def many(carry, x, y):
        def body(carry, _):
            model, state, key = carry
            key, now = jax.random.split(key)
            rows = jax.random.randint(now, (data["batch"],), 0, len(y))
            model, state, value = step(model, state, Batch(x[rows], y[rows]))
            return (model, state, key), value

        return lax.scan(body, carry, None, length=steps)

    return jax.jit(many, donate_argnums=0)


def ours(data: dict[str, Any], steps: int, tx: Any = None) -> tuple[Any, Any]:
    """natgrad's step: natural on q, then Adam on the rest."""
    natural = natgrad.mirror_descent(data["size"]) if tx is None else tx
    scheme = alternating(natural, optax.adam(data["rate"]), len(data["y"]))
    model = model_of(data)
    carry = (model, scheme.init(model), jax.random.key(0))
    return looped(scheme.step, data, steps), carry


def as_fit_does(data: dict[str, Any], steps: int) -> tuple[Any, Any]:
    """The step of `gp.fit` on batches: guarded, and Adam in units of the spacing."""
    rows = len(data["y"])
    rule, model = default_rule(rows, data["batch"] / rows), model_of(data)
    step = functools.partial(rule.step, progress=jnp.zeros(()))
    # Its counters begin as one array, which cannot be donated several times.
    state = jax.tree.map(jnp.copy, rule.init(model))
    return looped(step, data, steps), (model, state, jax.random.key(0))


def on_posterior(data: dict[str, Any], steps: int, tx: Any) -> tuple[Any, Any]:
    """A step on q alone, by any optimizer."""
    model, num_data = model_of(data), len(data["y"])

    def step(model, state, batch):
        rows = model.project(batch.x)
        at = lambda q: eqx.tree_at(lambda model: model.posterior, model, q)
        loss = lambda q: -projected_elbo(at(q), rows, batch, num_data)
        value, grad = jax.value_and_grad(loss)(model.posterior)
        updates, state = tx.update(grad, state, model.posterior)
        return at(optax.apply_updates(model.posterior, updates)), state, value

    carry = (model, tx.init(model.posterior), jax.random.key(0))
    return looped(step, data, steps), carry


def contenders(name: str, data: dict[str, Any], steps: int) -> dict[str, Any]:
    made = {
        "natural + Adam": ours(data, steps),
        "gp.fit": as_fit_does(data, steps),
        "bare, products": bare.runner(data, steps, "products"),
        "natural, q alone": on_posterior(
            data, steps, natgrad.mirror_descent(data["size"])
        ),
        # A direction costs the same whatever its length, and a short step is safe.
        "ngd, q alone": on_posterior(data, steps, natgrad.ngd(1e-6)),
        "Adam, q alone": on_posterior(data, steps, optax.adam(data["rate"])),
    }
    if data["inducing"] >= 1000:
        made["bare, solves"] = bare.runner(data, steps, "solves")
    return made


def measure(name: str, rounds: int) -> dict[str, Any]:
    data = workload(name)
    steps = max(1, 2000 // data["inducing"] if data["width"] < 100 else 4)
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    calls, carries, memory, seconds = {}, {}, {}, {}
    for who, (call, carry) in contenders(name, data, steps).items():
        # Donated once here and kept apart for each contender.
        carry = jax.tree.map(lambda a: a + 0 if eqx.is_inexact_array(a) else a, carry)
        began = time.process_time()
        calls[who] = call.lower(carry, x, y).compile()
        memory[who] = calls[who].memory_analysis().temp_size_in_bytes
        carries[who], value = calls[who](carry, x, y)
        jax.block_until_ready(value)
        seconds[who] = time.process_time() - began
    times = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            began = time.process_time()
            carries[who], value = call(carries[who], x, y)
            jax.block_until_ready(value)
            times[who].append((time.process_time() - began) / steps)
            if not np.isfinite(np.asarray(value)).all():
                raise RuntimeError(f"{who} is not finite on {name}")
    return report(name, data, times, memory, seconds)


def peak(name: str, who: str) -> float:
    """The peak memory in MB of a process that does one thing only."""
    command = [sys.executable, __file__, name, "--peak", who]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


def show_peak(name: str, who: str) -> None:
    data = workload(name)
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    call, carry = ours(data, 3) if who == "ours" else bare.runner(data, 3, who)
    carry = jax.tree.map(lambda a: a + 0 if eqx.is_inexact_array(a) else a, carry)
    jax.block_until_ready(call(carry, x, y))
    # Not from getrusage, which counts the parent from before this program began.
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def report(name, data, times, memory, seconds) -> dict[str, Any]:
    bares = [who for who in times if who.startswith("bare")]
    best = min(bares, key=lambda who: np.median(times[who]))
    ratio = np.array(times["natural + Adam"]) / np.array(times[best])
    adam = np.array(times["Adam, q alone"])
    mirror = np.median(np.array(times["natural, q alone"]) / adam)
    direction = np.median(np.array(times["ngd, q alone"]) / adam)
    way = best.removeprefix("bare, ")
    share = peak(name, "ours") / peak(name, way)
    of_fit = np.median(np.array(times["gp.fit"]) / np.array(times[best]))
    low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
    row = {
        "workload": name,
        "inducing": data["inducing"],
        "batch": data["batch"],
        "bare, ms": round(1e3 * float(np.median(times[best])), 2),
        "bare is": way,
        "natgrad / bare": round(float(middle), 2),
        "quartiles": f"{low:.2f} to {high:.2f}",
        "gp.fit / bare": round(float(of_fit), 2),
        "mirror_descent / Adam": round(float(mirror), 2),
        "ngd / Adam": round(float(direction), 2),
        "memory / bare": round(share, 2),
        "XLA's / bare": round(memory["natural + Adam"] / memory[best], 2),
        "compile, s": round(seconds["natural + Adam"], 1),
        "bare compile, s": round(seconds[best], 1),
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.peak:
        show_peak(arguments.names[0], arguments.peak)
        return
    rows = [measure(name, arguments.rounds) for name in arguments.names]
    if arguments.out is not None:
        path = arguments.out / "sparse.csv"
        known = list(csv.DictReader(path.open())) if path.exists() else []
        kept = {row["workload"]: row for row in known}
        kept.update({row["workload"]: row for row in rows})
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(kept[name] for name in SHAPES if name in kept)


if __name__ == "__main__":
    main()
