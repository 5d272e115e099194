"""Quality over time: natgrad's default and the optimisers of its peers.

All train the same model: the same inducing inputs to start from, kernel, noise and
batch. A run is some lines of results/optimisers.csv: the seconds of the processor
spent on training, and the mean log density of held-out rows at that time. Evaluation
is not counted. Compilation is counted apart: it is what the first step takes, and for
natgrad what a first fit takes longer than a second one in the same process.
"""
# pyright: reportMissingImports=false

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environments
import numpy as np
import tables


RESULTS = Path(__file__).parent / "results" / "optimisers.csv"
FIELDS = (
    "set",
    "method",
    "inducing",
    "batch",
    "step",
    "cpu_seconds",
    "compile_seconds",
    "log_density",
    "note",
)
SETS = ("kin8nm", "power", "protein", "elevators", "mnist")
METHODS = {
    "natgrad": "natgrad",
    "natgrad, all rows": "natgrad",
    "natgrad, softmax": "natgrad",
    "GPJax, Adam": "gpjax",
    "GPJax, natural": "gpjax",
    "GPflow, Adam": "gpflow",
    "GPflow, natural": "gpflow",
    "GPyTorch, Adam": "gpytorch",
    "GPyTorch, natural": "gpytorch",
}
SPLIT = 20
INDUCING, BATCH = 100, 256
RATE, GAMMA = 0.01, 0.1
"""The lengths of Adam's and of the natural steps, as the libraries' notebooks have
them. The natural step grows from a thousandth of it in the first 40 steps."""

WARM_UP = 40
SECONDS = {"mnist": 120.0}
"""What a run of a peer may take, without compilation; 40 if it is not here."""

TESTED = 2000
"""Held-out rows that are looked at."""

NOISE, VARIANCE = 0.1, 2.0
"""Where the noise (its variance) and the variance of the kernel start."""


class Clock:
    """The processor's seconds, without those of evaluation."""

    def __init__(self, evaluate: Callable[[Any], float]):
        self.evaluate, self.excluded = evaluate, 0.0
        self.points: list[tuple[int, float, float]] = []
        self.begun = time.process_time()

    def now(self) -> float:
        return time.process_time() - self.begun - self.excluded

    def look(self, step: int, model: Any) -> None:
        seconds, began = self.now(), time.process_time()
        self.points.append((step, seconds, float(self.evaluate(model))))
        self.excluded += time.process_time() - began


def marks(most: float) -> list[float]:
    """When to look: at times that grow by a fifth."""
    times = [0.25]
    while times[-1] < most:
        times.append(1.2 * times[-1])
    return times


def gamma_at(step: int) -> float:
    return GAMMA * 1000 ** (min(step / WARM_UP, 1) - 1)


def train(step: Callable[[int], Any], clock: Clock, seconds: float, stride: int = 1):
    """Steps until the time is over; the first call, which compiles, is not counted."""
    began = time.process_time()
    state = step(0)
    compiled = time.process_time() - began
    clock.begun = time.process_time()
    taken, left = stride, marks(seconds)
    while left:
        state = step(taken)
        taken += stride
        if clock.now() >= left[0]:
            clock.look(taken, state)
            left = [mark for mark in left if mark > clock.points[-1][1]]
        if clock.points and not np.isfinite(clock.points[-1][2]):
            break
    return compiled


# The libraries


def natgrad(rows: Any, method: str, seconds: float) -> tuple[Clock, float, str]:
    """`gp.fit` with its own rule and number of steps, at the given batch."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from natgrad import gp

    likelihoods = gp.likelihoods
    if rows["classes"]:
        is_softmax = method.endswith("softmax")
        kind = likelihoods.Softmax if is_softmax else likelihoods.RobustMax
        likelihood = kind(rows["classes"])
    else:
        likelihood = likelihoods.Gaussian(NOISE)
    kernel = gp.kernels.Matern52(rows["lengthscale"], VARIANCE)
    x_test, y_test = rows["x_test"], rows["y_test"]

    def evaluate(model: Any) -> float:
        return gp.predictor(model).log_density(x_test, y_test).mean()

    options: dict[str, Any] = {"progress": False}
    if not method.endswith("all rows"):
        options["batch_size"] = BATCH
    totals, clock, fitted = [], Clock(evaluate), None
    for _ in range(2):
        clock = Clock(evaluate)
        start = gp.SparseGP(kernel, likelihood, rows["z"])
        callback = lambda record, model, clock=clock: clock.look(record.step, model)
        fitted = gp.fit(start, (rows["x"], rows["y"]), callbacks=[callback], **options)
        clock.look(fitted.history[-1].step, fitted.params)
        totals.append(clock.now())
    assert fitted is not None
    return clock, totals[0] - totals[1], fitted.history.reason


def gpjax(rows: Any, method: str, seconds: float) -> tuple[Clock, float, str]:
    """The steps of `fit` and of `fit_natgrads`, whose Adam keeps its state."""
    import equinox as eqx
    import gpjax as library
    import jax
    import jax.numpy as jnp
    import optax
    from gpjax.fit import get_batch
    from gpjax.natural_gradients import natural_gradient_step, partition_variational
    from sparse_rivals import moments, unwrapped

    jax.config.update("jax_enable_x64", True)
    kernel = library.kernels.Matern52(
        lengthscale=jnp.asarray(rows["lengthscale"]), variance=jnp.asarray(VARIANCE)
    )
    prior = library.gps.Prior(
        mean_function=library.mean_functions.Zero(), kernel=kernel
    )
    likelihood = library.likelihoods.Gaussian(jnp.asarray(np.sqrt(NOISE)))
    family = library.variational_families.WhitenedVariationalGaussian(
        model=prior * likelihood, inducing_inputs=jnp.asarray(rows["z"])
    )
    table = library.Dataset(X=jnp.asarray(rows["x"]), y=jnp.asarray(rows["y"])[:, None])
    loss = lambda q, batch: -library.objectives.elbo(q, batch)
    adam, stride = optax.adam(RATE), 20
    arrays = lambda tree: eqx.filter(tree, eqx.is_array)
    is_natural = method.endswith("natural")
    q, rest = partition_variational(family)

    def one(carry: Any, now: Any) -> tuple[Any, Any]:
        q, rest, state, number = carry
        batch = get_batch(table, BATCH, now)
        if is_natural:
            length = GAMMA * 1000.0 ** (jnp.minimum(number / WARM_UP, 1.0) - 1)
            q, _ = natural_gradient_step(q, rest, batch, loss, length)
            of_rest = lambda rest: loss(eqx.combine(q, rest), batch)
            grads = eqx.filter_grad(of_rest)(rest)
            updates, state = adam.update(grads, state, arrays(rest))
            rest = eqx.apply_updates(rest, updates)
        else:
            both = lambda pair: loss(eqx.combine(*pair), batch)
            grads = eqx.filter_grad(both)((q, rest))
            updates, state = adam.update(grads, state, arrays((q, rest)))
            q, rest = eqx.apply_updates((q, rest), updates)
        return (q, rest, state, number + 1.0), None

    @jax.jit
    def many(carry: Any, key: Any) -> Any:
        return jax.lax.scan(one, carry, jax.random.split(key, stride))[0]

    held: dict[str, Any] = {
        "carry": (q, rest, adam.init(arrays(rest if is_natural else (q, rest))), 0.0)
    }
    # An explicit dtype: a weak one would change in the first call, and compile twice.
    strong = lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype)
    held["carry"] = jax.tree.map(strong, held["carry"])

    def step(number: int) -> Any:
        held["carry"] = many(held["carry"], jax.random.key(number))
        return jax.block_until_ready(held["carry"])

    latent = jax.jit(moments)

    def evaluate(carry: Any) -> float:
        family = eqx.combine(*carry[:2])
        mean, var = (np.asarray(a) for a in latent(family, jnp.asarray(rows["x_test"])))
        noise = float(np.asarray(unwrapped(family.model.likelihood.obs_stddev))) ** 2
        return of_gaussian(mean, var + noise, rows["y_test"])

    clock = Clock(evaluate)
    compiled = train(step, clock, seconds, stride)
    return clock, compiled, ""


def gpflow(rows: Any, method: str, seconds: float) -> tuple[Clock, float, str]:
    import gpflow as library
    import tensorflow as tf
    import tf_keras

    tf.random.set_seed(SPLIT)
    x, y = rows["x"].astype(float), rows["y"].astype(float)[:, None]
    x_test, y_test = rows["x_test"].astype(float), rows["y_test"]
    if rows["classes"]:
        likelihood = library.likelihoods.MultiClass(rows["classes"])
    else:
        likelihood = library.likelihoods.Gaussian(NOISE)
    kernel = library.kernels.Matern52(VARIANCE, rows["lengthscale"])
    model = library.models.SVGP(
        kernel,
        likelihood,
        rows["z"].copy(),
        num_data=len(y),
        num_latent_gps=max(rows["classes"], 1),
    )
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(len(y))
    loss = model.training_loss_closure(iter(shuffled.batch(BATCH)), compile=False)
    is_natural = method.endswith("natural")
    length = tf.Variable(0.0, dtype=library.default_float(), trainable=False)
    natural = library.optimizers.NaturalGradient(length)
    if is_natural:
        library.set_trainable(model.q_mu, False)
        library.set_trainable(model.q_sqrt, False)
    adam, variables = tf_keras.optimizers.legacy.Adam(RATE), model.trainable_variables

    @tf.function
    def one():
        if is_natural:
            natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        adam.minimize(loss, variables)

    def step(number: int) -> Any:
        length.assign(gamma_at(number))
        one()
        return model

    @tf.function
    def log_densities(x: Any, y: Any) -> Any:
        return model.predict_log_density((x, y))

    targets = tf.constant(y_test.astype(float)[:, None])
    evaluate = lambda _: log_densities(tf.constant(x_test), targets).numpy().mean()
    clock = Clock(evaluate)
    compiled = train(step, clock, seconds)
    return clock, compiled, ""


def gpytorch(rows: Any, method: str, seconds: float) -> tuple[Clock, float, str]:
    """In 32 bits, which are its default."""
    import gpytorch as library
    import torch
    from gpytorch import distributions, kernels, means, variational

    torch.manual_seed(SPLIT)
    torch.set_num_threads(1)
    tensor = lambda v: torch.as_tensor(v, dtype=torch.float32)
    latents = max(rows["classes"], 1)
    shape = torch.Size([latents]) if latents > 1 else torch.Size([])
    is_natural = method.endswith("natural")
    kind = (
        variational.NaturalVariationalDistribution
        if is_natural
        else variational.CholeskyVariationalDistribution
    )

    class Model(library.models.ApproximateGP):
        def __init__(self):
            q = kind(len(rows["z"]), batch_shape=shape)
            strategy = variational.VariationalStrategy(
                self, tensor(rows["z"]), q, learn_inducing_locations=True
            )
            if latents > 1:
                strategy = variational.IndependentMultitaskVariationalStrategy(
                    strategy, num_tasks=latents
                )
            super().__init__(strategy)
            self.mean_module = means.ZeroMean(batch_shape=shape)
            matern = kernels.MaternKernel(nu=2.5, ard_num_dims=len(rows["lengthscale"]))
            matern.lengthscale = tensor(rows["lengthscale"])
            self.covar_module = kernels.ScaleKernel(matern)
            self.covar_module.outputscale = VARIANCE

        def forward(self, x: Any) -> Any:
            covariance = self.covar_module(x)
            return distributions.MultivariateNormal(self.mean_module(x), covariance)

    model = Model()
    x, x_test = tensor(rows["x"]), tensor(rows["x_test"])
    if rows["classes"]:
        likelihood = library.likelihoods.SoftmaxLikelihood(
            num_classes=latents, mixing_weights=False
        )
        y, y_test = (torch.as_tensor(rows[k]).long() for k in ("y", "y_test"))
    else:
        likelihood = library.likelihoods.GaussianLikelihood()
        likelihood.noise = NOISE
        y, y_test = tensor(rows["y"]), tensor(rows["y_test"])
    bound = library.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    table = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(table, batch_size=BATCH, shuffle=True)

    def forever():
        while True:
            yield from loader

    batches = forever()
    if is_natural:
        natural = library.optim.NGD(
            model.variational_parameters(), num_data=len(y), lr=GAMMA
        )
        rest = [*model.hyperparameters(), *likelihood.parameters()]
    else:
        natural, rest = None, [*model.parameters(), *likelihood.parameters()]
    adam = torch.optim.Adam(rest, lr=RATE)

    def step(number: int) -> Any:
        x_batch, y_batch = next(batches)
        adam.zero_grad()
        if natural is not None:
            natural.zero_grad()
            natural.param_groups[0]["lr"] = gamma_at(number)
        (-bound(model(x_batch), y_batch)).backward()
        if natural is not None:
            natural.step()
        adam.step()
        return model

    def evaluate(_: Any) -> float:
        model.eval()
        likelihood.eval()
        settings = library.settings.num_likelihood_samples(200)
        with torch.no_grad(), settings:
            latent = model(x_test)
            if rows["classes"]:
                given = likelihood(latent).probs.mean(0)
                chosen = given[torch.arange(len(y_test)), y_test]
                value = float(chosen.clamp_min(1e-12).log().mean())
            else:
                predicted = likelihood(latent)
                mean, var = predicted.mean.numpy(), predicted.variance.numpy()
                value = of_gaussian(mean, var, rows["y_test"])
        model.train()
        likelihood.train()
        return value

    clock = Clock(evaluate)
    compiled = train(step, clock, seconds)
    return clock, compiled, "float32"


def of_gaussian(mean: np.ndarray, var: np.ndarray, y: np.ndarray) -> float:
    """The mean log density of a Gaussian."""
    return float(-0.5 * np.mean(np.log(2 * np.pi * var) + (y - mean) ** 2 / var))


# Runs


def rows_of(name: str) -> dict[str, Any]:
    """A split of a set, scaled, and where all models start."""
    from answers import Scaled
    from sparse_rivals import k_means

    data = tables.load(name, SPLIT)
    is_classes = name == "mnist"
    scaled = Scaled(data, "classes" if is_classes else "real")
    x, x_test = (data["x"], data["x_test"]) if is_classes else (scaled.x, scaled.x_test)
    x, x_test = x.astype(float), x_test[:TESTED].astype(float)
    width = x.shape[1]
    return {
        "x": x,
        "y": scaled.y,
        "x_test": x_test,
        "y_test": scaled.y_test[:TESTED],
        "z": k_means(x, INDUCING, SPLIT),
        # Pixels are between 0 and 1, and few are bright.
        "lengthscale": np.full(width, 0.25 if is_classes else 1.0) * np.sqrt(width),
        "classes": 10 if is_classes else 0,
    }


ON_ALL_ROWS = ("kin8nm", "power")
"""Sets of at most 12,000 rows. On more rows `gp.fit` takes batches by itself, and a run
without a batch size would be the same run again."""


def is_wanted(name: str, method: str) -> bool:
    if method.endswith("all rows"):
        return name in ON_ALL_ROWS
    if name == "mnist":
        return not method.startswith("GPJax")
    return not method.endswith("softmax")


def worker(told: str) -> None:
    """The process of one run."""
    name, method, folder = json.loads(told)
    with np.load(Path(folder) / "data.npz") as file:
        rows: dict[str, Any] = dict(file)
    rows["classes"] = int(rows["classes"])
    entry = globals()[METHODS[method]]
    seconds = SECONDS.get(name, 40.0)
    clock, compiled, note = entry(rows, method, seconds)
    answer = {"points": clock.points, "compiled": compiled, "note": note}
    (Path(folder) / "answer.json").write_text(json.dumps(answer))


def run(name: str, method: str) -> list[dict[str, Any]]:
    """The lines of one run; a run that fails is one line."""
    shared = {"set": name, "method": method, "inducing": INDUCING, "batch": BATCH}
    python = environments.python_of(METHODS[method])
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **rows_of(name))  # pyright: ignore
        told = json.dumps([name, method, folder])
        ended = subprocess.run(
            [python, str(Path(__file__).parent / "run.py"), "curve", told],
            env=os.environ | tables.ONE_THREAD,
            stderr=subprocess.PIPE,
            text=True,
        )
        path = Path(folder) / "answer.json"
        if not path.exists():
            lines = ended.stderr.strip().splitlines() or ["no message"]
            return [shared | {"note": f"failed: {lines[-1][:200]}"}]
        answer = json.loads(path.read_text())
    return [
        shared
        | {
            "step": step,
            "cpu_seconds": f"{seconds:.3f}",
            "compile_seconds": f"{answer['compiled']:.1f}",
            "log_density": f"{value:.5f}",
            "note": answer["note"],
        }
        for step, seconds, value in answer["points"]
    ]


def main(sets: list[str], methods: list[str], _: list[int]) -> None:
    """All runs that are wanted and missing."""
    for name in sets or SETS:
        for method in methods or METHODS:
            done = {(row["set"], row["method"]) for row in tables.read(RESULTS)}
            if (name, method) in done or not is_wanted(name, method):
                continue
            lines = run(name, method)
            for line in lines:
                tables.append(line, FIELDS, RESULTS)
            print(*lines[-1].values(), flush=True)
