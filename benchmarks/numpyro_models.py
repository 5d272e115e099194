"""Steps and time to a Gaussian posterior: natgrad and NumPyro's guides with Adam.

    python benchmarks/numpyro_models.py natgrad adam nuts   # results/numpyro_*.csv
    python benchmarks/numpyro_models.py reference           # for the best known ELBO
    python benchmarks/numpyro_models.py estimators          # where a slope comes from
    python benchmarks/numpyro_models.py table               # fills the page

natgrad runs with nothing set. Adam runs at five learning rates and with a one-cycle
schedule; the table has the best of the six for each model and guide. A run is some
lines of results/numpyro_runs.csv: the ELBO after some steps, and the processor's
seconds until then without compilation and evaluation. The ELBO of every method is
estimated from the same standard normal numbers.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, autoguide
from numpyro_zoo import MODELS

import natgrad
from natgrad.numpyro import _estimate


RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "numpyro_runs.csv"
CHECKS = RESULTS / "numpyro_checks.csv"
ESTIMATORS = RESULTS / "numpyro_estimators.csv"
MINIBATCH = RESULTS / "numpyro_minibatch.csv"
RUN_FIELDS = ("model", "latents", "method", "rate", "compile", "step", "cpu", "elbo")
CHECK_FIELDS = ("model", "steps", "cpu", "khat", "mean_error", "sd_ratio", "nuts_cpu")
GUIDES = {
    "AutoMultivariateNormal": autoguide.AutoMultivariateNormal,
    "AutoLowRankMultivariateNormal": autoguide.AutoLowRankMultivariateNormal,
    "AutoDiagonalNormal": autoguide.AutoDiagonalNormal,
}
RATES = ("0.001", "0.003", "0.01", "0.03", "0.1", "one-cycle")
PEAK = 0.1
"""The largest rate of the one-cycle schedule."""

STEPS, CHUNK = 4000, 20
"""Steps of Adam, and how many are taken between two looks at the clock."""

OURS = 1000
"""Steps of natgrad's record, the most that `fit` takes; it mostly stops earlier."""

LONG, BEGINNINGS = 400, 4
"""Steps of a run for the best known ELBO, and how many such runs there are."""

DRAWS = 1000
"""Draws that an ELBO is estimated from."""

NEAR = 0.1
"""Nats from the best known ELBO at which a run has arrived."""


def now() -> float:
    return time.process_time()


def append(path: Path, fields: tuple[str, ...], row: dict[str, Any]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def elbo_of(guide: Any, args: Any) -> Any:
    """The ELBO of N(mean, root rootᵀ) over the unconstrained space."""
    noise = _estimate.paired_noise(jax.random.key(9), DRAWS, (guide.latent_dim,), float)
    potential = guide._potential_fn_gen(*args)
    constant = guide.latent_dim / 2 * np.log(2 * np.pi * np.e)

    @jax.jit
    def elbo(mean: Any, root: Any) -> Any:
        energy = lambda each: potential(guide._unpack_latent(mean + root @ each))
        entropy = jnp.log(jnp.abs(jnp.diagonal(root))).sum() + constant
        return entropy - lax.map(energy, noise).mean()

    return elbo


def moments(posterior: Any) -> tuple[Any, Any]:
    """The mean and a triangular factor of the covariance of a guide's posterior."""
    if hasattr(posterior, "q"):
        return posterior.q.location(), posterior.q.factor()
    if hasattr(posterior, "covariance_matrix"):
        return posterior.mean, jnp.linalg.cholesky(posterior.covariance_matrix)
    return posterior.mean, jnp.diag(jnp.sqrt(posterior.variance))


def marks(most: int, chunk: int) -> list[int]:
    """When to look: at every chunk first, then at steps that grow by a quarter."""
    steps = [chunk]
    while steps[-1] < most:
        steps.append(
            min(max(steps[-1] + chunk, steps[-1] * 5 // 4 // chunk * chunk), most)
        )
    return steps


def compiled(svi: Any, args: Any, chunk: int) -> tuple[Any, Any, float]:
    """The state of a run, a program of some steps, and the seconds that both took."""
    began = now()
    state = svi.init(jax.random.key(0), *args)
    arrays, others = eqx.partition(args, eqx.is_array)

    def several(state: Any, arrays: Any) -> Any:
        given = eqx.combine(arrays, others)
        body = lambda state, _: (svi.update(state, *given)[0], None)
        return lax.scan(body, state, length=chunk)[0]

    program = jax.jit(several).lower(state, arrays).compile()
    return state, lambda state: program(state, arrays), now() - began


def follow(
    name: str,
    method: str,
    rate: str,
    svi: Any,
    ready: tuple[Any, Any, float],
    elbo: Any,
    most: int,
    chunk: int,
    at: Any = lambda state, step: state,
    path: Path = RUNS,
) -> None:
    state, program, seconds = ready
    cpu, step = 0.0, 0
    for mark in marks(most, chunk):
        while step < mark:
            state = at(state, step)
            began = now()
            state = jax.block_until_ready(program(state))
            cpu += now() - began
            step += chunk
        params = svi.get_params(state)
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
            break  # NumPyro raises an error at parameters that are not finite
        value = float(elbo(*moments(svi.guide.get_posterior(params))))
        found = (name, svi.guide.latent_dim, method, rate, f"{seconds:.2f}")
        found += (step, f"{cpu:.4f}", f"{value:.3f}")
        append(path, RUN_FIELDS, dict(zip(RUN_FIELDS, found, strict=True)))
        if not np.isfinite(value):
            break


def run_natgrad(
    name: str, method: str = "natgrad", draws: int = 8, path: Path = RUNS
) -> None:
    model, args = MODELS[name]()
    guide = natgrad.numpyro.AutoNatural(model)
    svi = SVI(model, guide, natgrad.numpyro.optimizer(draws), Trace_ELBO())
    ready, elbo = compiled(svi, args, 1), elbo_of(guide, args)
    follow(name, method, "", svi, ready, elbo, OURS, 1, path=path)


def run_reference(name: str) -> None:
    """The best known ELBO: long runs from other beginnings, each at its end."""
    model, args = MODELS[name]()
    guide = natgrad.numpyro.AutoNatural(model)
    svi = SVI(model, guide, natgrad.numpyro.optimizer(32), Trace_ELBO())
    _, program, seconds = compiled(svi, args, LONG)
    elbo = elbo_of(guide, args)
    for seed in range(BEGINNINGS):
        key = jax.random.key(100 + seed)
        start = jax.random.uniform(key, (guide.latent_dim,), float, -2, 2)
        guide._init_locs = guide._unpack_latent(start)
        state = svi.init(jax.random.key(seed), *args)
        found = program(state)
        value = float(elbo(*moments(guide.get_posterior(svi.get_params(found)))))
        row = (name, guide.latent_dim, "reference", seed, f"{seconds:.2f}")
        row += (LONG, "", f"{value:.3f}")
        append(RUNS, RUN_FIELDS, dict(zip(RUN_FIELDS, row, strict=True)))


def run_estimators(name: str) -> None:
    """Gradients and Hessians at few and many draws, and gradients alone."""
    for draws in (2, 8, 32):
        run_natgrad(name, f"Hessians, {draws} draws", draws, ESTIMATORS)
    limit, _estimate.HESSIAN = _estimate.HESSIAN, 0
    for draws in (8, 64):
        run_natgrad(name, f"gradients, {draws} draws", draws, ESTIMATORS)
    _estimate.HESSIAN = limit


def run_adam(name: str, method: str) -> None:
    model, args = MODELS[name]()
    guide = GUIDES[method](model)
    tx = optax.inject_hyperparams(optax.adam)(learning_rate=0.01)
    svi = SVI(model, guide, tx, Trace_ELBO())
    ready = compiled(svi, args, CHUNK)
    elbo = elbo_of(guide, args)
    cycle = optax.cosine_onecycle_schedule(STEPS, PEAK)
    for rate in RATES:

        def at(state: Any, step: int, rate: str = rate) -> Any:
            value = cycle(step) if rate == "one-cycle" else float(rate)
            count, (params, inner) = state.optim_state
            inner.hyperparams["learning_rate"] = jnp.asarray(value, float)
            return state._replace(optim_state=(count, (params, inner)))

        follow(name, method, rate, svi, ready, elbo, STEPS, CHUNK, at)


def run_nuts(name: str) -> None:
    """natgrad's fit with nothing set, its k-hat, and its moments against NUTS."""
    model, args = MODELS[name]()
    began = now()
    result = natgrad.numpyro.fit(model, *args)
    cpu = now() - began
    key = jax.random.key(2)
    ours = result.guide.sample_posterior(key, result.params, sample_shape=(4000,))
    check = natgrad.numpyro.diagnose(model, result.guide, result.params, *args)
    began = now()
    chain = MCMC(NUTS(model), num_warmup=500, num_samples=1000, progress_bar=False)
    chain.run(jax.random.key(3), *args)
    theirs = chain.get_samples()
    nuts = now() - began
    errors, ratios = [], []
    for site, draws in theirs.items():
        scale = draws.std(0)
        errors.append(np.ravel(jnp.abs(ours[site].mean(0) - draws.mean(0)) / scale))
        ratios.append(np.ravel(ours[site].std(0) / scale))
    found = (name, len(result.losses), f"{cpu:.2f}", f"{check.khat:.2f}")
    found += (f"{np.concatenate(errors).max():.2f}",)
    found += (f"{np.median(np.concatenate(ratios)):.2f}", f"{nuts:.2f}")
    append(CHECKS, CHECK_FIELDS, dict(zip(CHECK_FIELDS, found, strict=True)))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    for task in given.tasks:
        if task == "table":
            import numpyro_tables

            numpyro_tables.write_page()
            print(numpyro_tables.text())
            continue
        for name in given.models.split(","):
            if task == "natgrad":
                run_natgrad(name)
            elif task == "reference":
                run_reference(name)
            elif task == "estimators":
                run_estimators(name)
            elif task == "nuts":
                run_nuts(name)
            else:
                for method in GUIDES if task == "adam" else [task]:
                    run_adam(name, method)
            jax.clear_caches()


if __name__ == "__main__":
    main()
