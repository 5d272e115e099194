"""Makes `nuts.npz`, posteriors of small Gaussian processes: `python make_nuts.py`.

The chains run in the whitened v, where f = chol(K + jitter) v and v ~ N(0, I). What is
stored of them is the mean and the standard deviation of f at the rows.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, log_ndtr
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS


HERE = pathlib.Path(__file__).parent
N, CHAINS, WARMUP, DRAWS = 40, 4, 1000, 4000
LENGTHSCALE, RELATIVE_JITTER = 1.0, 1e-10
EDGES, ORDINAL_SCALE = np.array([-1.5, -0.5, 0.5, 1.5]), 0.5
DF, STUDENT_SCALE = 3.0, 0.3

Density = Callable[[jax.Array, jax.Array], jax.Array]


class Case(NamedTuple):
    variance: float
    log_prob: Density
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray]


def bernoulli(f: jax.Array, y: jax.Array) -> jax.Array:
    return log_ndtr(jnp.where(y > 0, f, -f))


def poisson(f: jax.Array, y: jax.Array) -> jax.Array:
    return y * f - jnp.exp(f) - gammaln(y + 1)


def student_t(f: jax.Array, y: jax.Array) -> jax.Array:
    constant = gammaln((DF + 1) / 2) - gammaln(DF / 2)
    constant -= jnp.log(DF * jnp.pi * STUDENT_SCALE**2) / 2
    return constant - (DF + 1) / 2 * jnp.log1p(((y - f) / STUDENT_SCALE) ** 2 / DF)


def ordinal(f: jax.Array, y: jax.Array) -> jax.Array:
    """log (Φ(b) − Φ(a)) for the ends of the bin, from the tail where both are small."""
    label = y.astype(int)
    # Infinite ends would make a gradient 0 · ∞; at 40 deviations Φ is 0 or 1 already.
    ends = jnp.concatenate(
        [jnp.array([-40.0]), EDGES / ORDINAL_SCALE, jnp.array([40.0])]
    )
    low, high = (ends[label + i] - f / ORDINAL_SCALE for i in (0, 1))
    low, high = jnp.where(low > 0, -high, low), jnp.where(low > 0, -low, high)
    return log_ndtr(high) + jnp.log1p(-jnp.exp(log_ndtr(low) - log_ndtr(high)))


def draw_bernoulli(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    return (rng.standard_normal(N) < f).astype(float)


def draw_ordinal(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    noisy = f + ORDINAL_SCALE * rng.standard_normal(N)
    return np.searchsorted(EDGES, noisy).astype(float)


def draw_student_t(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    y = f + STUDENT_SCALE * rng.standard_t(DF, N)
    y[[7, 19, 30]] += [2.5, -2.0, 3.0]
    return y


CASES = {
    "bernoulli_probit": Case(4.0, bernoulli, draw_bernoulli),
    "poisson": Case(1.0, poisson, lambda rng, f: rng.poisson(np.exp(f)).astype(float)),
    "ordinal": Case(1.5, ordinal, draw_ordinal),
    "student_t": Case(1.0, student_t, draw_student_t),
}


def factor(x: np.ndarray, variance: float) -> np.ndarray:
    """The Cholesky factor of the prior covariance."""
    squared = ((x[:, None] - x[None, :]) / LENGTHSCALE) ** 2
    jitter = RELATIVE_JITTER * np.eye(N)
    return np.linalg.cholesky(variance * (np.exp(-squared / 2) + jitter))


def sample(root: np.ndarray, y: np.ndarray, log_prob: Density) -> np.ndarray:
    """Draws of f, [CHAINS, DRAWS, N]."""

    def model() -> None:
        v = numpyro.sample("v", dist.Normal(0.0, 1.0).expand([N]).to_event(1))
        f = jnp.asarray(root) @ jnp.asarray(v)
        numpyro.deterministic("f", f)
        numpyro.factor("likelihood", log_prob(f, jnp.asarray(y)).sum())

    chains = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), extra_fields=["diverging"])
    assert not chains.get_extra_fields()["diverging"].any()
    return np.asarray(chains.get_samples(group_by_chain=True)["f"])


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(40)
    x = np.sort(rng.uniform(0, 5, N))
    output: dict[str, Any] = {"x": x}
    for name, case in CASES.items():
        root = factor(x, case.variance)
        y = case.draw(rng, root @ rng.standard_normal(N))
        f = sample(root, y, case.log_prob)
        sd = f.std((0, 1))
        # The error of a standard deviation is that of E[(f − mean)²], over 2 sd.
        square = (f - f.mean((0, 1))) ** 2
        found = {
            "y": y,
            "mean": f.mean((0, 1)),
            "sd": sd,
            "mean_error": sd / np.sqrt(effective_sample_size(f)),
            "sd_error": square.std((0, 1))
            / np.sqrt(effective_sample_size(square))
            / (2 * sd),
            "r_hat": split_gelman_rubin(f),
        }
        worst = {key: float(np.max(found[key])) for key in ["r_hat", "mean_error"]}
        print(name, worst, float(effective_sample_size(f).min()), file=sys.stderr)
        assert worst["r_hat"] < 1.01
        output |= {f"{name}.{key}": np.asarray(value) for key, value in found.items()}
    np.savez_compressed(HERE / "nuts.npz", **output)
    settings = {
        "kernel": "rbf",
        "lengthscale": LENGTHSCALE,
        "variances": {name: case.variance for name, case in CASES.items()},
        "relative_jitter": RELATIVE_JITTER,
        "ordinal": {"edges": EDGES.tolist(), "scale": ORDINAL_SCALE},
        "student_t": {"df": DF, "scale": STUDENT_SCALE},
        "chains": CHAINS,
        "warmup": WARMUP,
        "draws_per_chain": DRAWS,
    }
    versions = {name: metadata.version(name) for name in ["numpyro", "jax", "numpy"]}
    text = json.dumps({"settings": settings, "versions": versions}, indent=2)
    (HERE / "nuts.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
