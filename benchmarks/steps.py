"""What one natural step on q and one of Adam on the rest cost, by library.

A probit classifier of 8 inputs, batches of 1,024 of 20,000 rows, 64 bits. `bare` is the
step written by hand for this one model (bare.py), in the faster of its two ways at each
size; `gp.fit` is natgrad's guarded default. Each contender is a process of its own with
one thread; all take turns in rounds, and ratios are medians over the rounds. Memory is
the peak of the process. Compilation is what the first two calls take longer than the
third: GPJax compiles in both.
"""
# pyright: reportMissingImports=false

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environments
import numpy as np
import tables


RESULTS = Path(__file__).parent / "results" / "steps.csv"
FIELDS = (
    "inducing",
    "method",
    "ms",
    "ratio",
    "low",
    "high",
    "compile_seconds",
    "peak_mb",
    "rounds",
    "load",
    "note",
)
METHODS = {
    "bare, products": "natgrad",
    "bare, solves": "natgrad",
    "natgrad": "natgrad",
    "gp.fit": "natgrad",
    "GPJax": "gpjax",
    "GPflow": "gpflow",
    "GPyTorch": "gpytorch",
}
SIZES = (100, 200, 500, 1000, 2000)
ROUNDS = 7
WIDTH, ROWS, BATCH = 8, 20_000, 1024
GAMMA, RATE = 0.05, 1e-3
"""Lengths of the steps; what a step costs does not depend on them."""


def workload(inducing: int) -> dict[str, Any]:
    """Data, and where the model starts."""
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, WIDTH))
    f = np.sin(2 * x @ random.standard_normal(WIDTH) / np.sqrt(WIDTH))
    z = x[random.choice(ROWS, inducing, replace=False)]
    return {
        "x": x,
        "y": (f + 0.3 * random.standard_normal(ROWS) > 0).astype(float),
        "z": z + 0.01 * random.standard_normal(z.shape),
        "lengthscale": np.sqrt(WIDTH),
        "variance": 2.0,
        "likelihood": "Bernoulli",
        "latents": None,
        "size": GAMMA,
        "rate": RATE,
        "batch": BATCH,
    }


def stride(inducing: int) -> int:
    """Steps in one compiled call."""
    return max(1, 2000 // inducing)


# The contenders: each gives a function that takes so many steps


Steps = Callable[[], Any]


def natgrad(method: str, inducing: int) -> tuple[Steps, int]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    data, count = workload(inducing), stride(inducing)
    if method.startswith("bare"):
        import bare

        call, carry = bare.runner(data, count, method.removeprefix("bare, "))
    else:
        call, carry = of_natgrad(data, count, method)
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
    carry = jax.tree.map(lambda a: a + 0 if eqx.is_inexact_array(a) else a, carry)
    held = {"carry": carry}

    def steps() -> None:
        held["carry"], value = call(held["carry"], x, y)
        if not np.isfinite(np.asarray(value)).all():
            raise FloatingPointError("the loss is not finite")

    return steps, count


def of_natgrad(data: dict[str, Any], count: int, method: str) -> tuple[Any, Any]:
    """A compiled call of many steps on random batches, and its first carry."""
    import jax
    import jax.numpy as jnp
    import optax

    from natgrad import gp, mirror_descent
    from natgrad.data import Batch
    from natgrad.gp._fit import default_rule

    kernel = gp.kernels.Matern52(data["lengthscale"], data["variance"])
    model = gp.SparseGP(kernel, gp.likelihoods.Bernoulli(), data["z"])
    if method == "natgrad":
        rule = gp.alternating(mirror_descent(GAMMA), optax.adam(RATE), ROWS)
        step, state = rule.step, rule.init(model)
    else:
        rule = default_rule(ROWS, BATCH / ROWS)
        step = functools.partial(rule.step, progress=jnp.zeros(()))
        # Its counters begin as one array, which cannot be donated several times.
        state = jax.tree.map(jnp.copy, rule.init(model))

    def many(carry: Any, x: Any, y: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            model, state, key = carry
            key, now = jax.random.split(key)
            rows = jax.random.randint(now, (BATCH,), 0, ROWS)
            model, state, value = step(model, state, Batch(x[rows], y[rows]))
            return (model, state, key), value

        return jax.lax.scan(body, carry, None, length=count)

    return jax.jit(many, donate_argnums=0), (model, state, jax.random.key(0))


def gpjax(method: str, inducing: int) -> tuple[Steps, int]:
    """`fit_natgrads` inside one compiled call: alone it compiles at every call."""
    import gpjax as library
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_enable_x64", True)
    data, count = workload(inducing), stride(inducing)
    kernel = library.kernels.Matern52(
        lengthscale=jnp.asarray(data["lengthscale"]),
        variance=jnp.asarray(data["variance"]),
    )
    zero = library.mean_functions.Zero()
    prior = library.gps.Prior(mean_function=zero, kernel=kernel)
    family = library.variational_families.WhitenedVariationalGaussian(
        model=prior * library.likelihoods.Bernoulli(),
        inducing_inputs=jnp.asarray(data["z"]),
    )

    @jax.jit
    def many(family: Any, x: Any, y: Any, key: Any) -> Any:
        return library.fit_natgrads(
            model=family,
            objective=lambda q, batch: -library.objectives.elbo(q, batch),
            train_data=library.Dataset(X=x, y=y),
            optim=optax.adam(RATE),
            natgrad_lr=GAMMA,
            num_iters=count,
            batch_size=BATCH,
            key=key,
            verbose=False,
            safe=False,
        )

    held, number = {"family": family}, iter(range(10**9))
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])[:, None]

    def steps() -> None:
        key = jax.random.key(next(number))
        held["family"], values = many(held["family"], x, y, key)
        jax.block_until_ready(values)

    return steps, count


def gpflow(method: str, inducing: int) -> tuple[Steps, int]:
    """Both steps in one compiled function, on the same kind of batches."""
    import gpflow as library
    import tensorflow as tf
    import tf_keras

    data = workload(inducing)
    model = library.models.SVGP(
        library.kernels.Matern52(data["variance"], data["lengthscale"]),
        library.likelihoods.Bernoulli(),
        data["z"],
        num_data=ROWS,
    )
    library.set_trainable(model.q_mu, False)
    library.set_trainable(model.q_sqrt, False)
    table = tf.data.Dataset.from_tensor_slices((data["x"], data["y"][:, None]))
    batches = iter(table.repeat().shuffle(ROWS).batch(BATCH))
    loss = model.training_loss_closure(batches, compile=False)
    natural = library.optimizers.NaturalGradient(GAMMA)
    adam, variables = tf_keras.optimizers.legacy.Adam(RATE), model.trainable_variables

    @tf.function
    def step():
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, variables)

    def steps() -> None:
        step()
        model.q_mu.numpy()

    return steps, 1


def gpytorch(method: str, inducing: int) -> tuple[Steps, int]:
    """One backward pass for both steps, the faster of its two documented loops."""
    import gpytorch as library
    import torch
    from gpytorch import distributions, kernels, means, variational

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    data = workload(inducing)

    class Model(library.models.ApproximateGP):
        def __init__(self):
            q = variational.NaturalVariationalDistribution(inducing)
            z = torch.as_tensor(data["z"])
            super().__init__(
                variational.VariationalStrategy(
                    self, z, q, learn_inducing_locations=True
                )
            )
            self.mean_module = means.ZeroMean()
            self.covar_module = kernels.ScaleKernel(kernels.MaternKernel(nu=2.5))
            self.covar_module.outputscale = data["variance"]
            self.covar_module.base_kernel.lengthscale = data["lengthscale"]

        def forward(self, x: Any) -> Any:
            covariance = self.covar_module(x)
            return distributions.MultivariateNormal(self.mean_module(x), covariance)

    model, likelihood = Model(), library.likelihoods.BernoulliLikelihood()
    bound = library.mlls.VariationalELBO(likelihood, model, num_data=ROWS)
    natural = library.optim.NGD(model.variational_parameters(), num_data=ROWS, lr=GAMMA)
    adam = torch.optim.Adam(model.hyperparameters(), lr=RATE)
    x, y = torch.as_tensor(data["x"]), torch.as_tensor(data["y"])

    def steps() -> None:
        rows = torch.randint(0, ROWS, (BATCH,))
        natural.zero_grad()
        adam.zero_grad()
        (-bound(model(x[rows]), y[rows])).backward()
        natural.step()
        adam.step()

    return steps, 1


# Processes


def worker(told: str) -> None:
    """Answers each line of input: how many calls to make. Ends with the input."""
    method, inducing = json.loads(told)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    began = time.process_time()
    steps, count = globals()[METHODS[method]](method, inducing)
    for line in sys.stdin:
        calls = int(line)
        began = time.process_time()
        for _ in range(calls):
            steps()
        seconds = (time.process_time() - began) / (calls * count)
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        answer = {"seconds": seconds, "count": count, "peak": peak}
        print(json.dumps(answer), file=answers, flush=True)


class Contender:
    """A process that takes steps when it is asked to."""

    def __init__(self, method: str, inducing: int):
        python = environments.python_of(METHODS[method])
        told = json.dumps([method, inducing])
        self.process = subprocess.Popen(
            [python, str(Path(__file__).parent / "run.py"), "step", told],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | tables.ONE_THREAD,
            text=True,
        )

    def take(self, calls: int) -> dict[str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(calls, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process has ended")
        return json.loads(line)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compilation(contender: Contender) -> tuple[float, float]:
    """The seconds of compilation, and of a call without it."""
    answers = [contender.take(1) for _ in range(3)]
    first, second, one = (each["seconds"] * each["count"] for each in answers)
    return first + second - 2 * one, one


def measure(inducing: int) -> list[dict[str, Any]]:
    """The lines of one size."""
    names = [m for m in METHODS if m != "bare, solves" or inducing >= 1000]
    contenders = {name: Contender(name, inducing) for name in names}
    compiled: dict[str, float] = {}
    calls: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in names}
    for name, contender in contenders.items():
        compiled[name], one = compilation(contender)
        calls[name] = max(1, round(0.3 / max(one, 1e-4)))
    peaks: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            answer = contender.take(calls[name])
            times[name].append(answer["seconds"])
            peaks[name] = answer["peak"]
    for contender in contenders.values():
        contender.end()
    bares = [name for name in names if name.startswith("bare")]
    best = min(bares, key=lambda name: np.median(times[name]))
    lines = []
    for name in names:
        ratio = np.array(times[name]) / np.array(times[best])
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        lines.append(
            {
                "inducing": inducing,
                "method": name,
                "ms": f"{1e3 * np.median(times[name]):.4g}",
                "ratio": f"{middle:.3g}",
                "low": f"{low:.3g}",
                "high": f"{high:.3g}",
                "compile_seconds": f"{compiled[name]:.3g}",
                "peak_mb": f"{peaks[name]:.0f}",
                "rounds": ROUNDS,
                "load": f"{os.getloadavg()[0]:.1f}",
                "note": "the faster bare step" if name == best else "",
            }
        )
    return lines


def main(sizes: list[str], _: list[str], __: list[int]) -> None:
    """All sizes that are wanted and missing."""
    for inducing in (int(size) for size in sizes or SIZES):
        done = {row["inducing"] for row in tables.read(RESULTS)}
        if str(inducing) in done:
            continue
        for line in measure(inducing):
            tables.append(line, FIELDS, RESULTS)
            print(*line.values(), flush=True)
