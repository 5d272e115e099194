"""A logistic regression of a million rows and 200 coefficients, on minibatches.

    python benchmarks/numpyro_minibatch.py

How long until the ELBO is within 0.1 nats per 1,000 rows of the best known: natgrad
with nothing set, and Adam at its best of four learning rates. The ELBO is that of all
rows, from a few draws, and is not part of the time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro_models
import optax
from jax import lax
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO, autoguide

import natgrad


ROWS, LATENTS, BATCH = 1_000_000, 200, 1000
RATES = (0.001, 0.003, 0.01, 0.03)
SECONDS = 60.0
"""What a run may take."""

FIELDS = ("method", "rate", "step", "cpu", "elbo_per_1000_rows")


def model(x, y, size):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(LATENTS), 1.0).to_event(1))
    with numpyro.plate("rows", ROWS, subsample_size=size) as rows:
        numpyro.sample("y", dist.Bernoulli(logits=x[rows] @ w), obs=y[rows])


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, LATENTS)).astype("float32") / np.sqrt(LATENTS)
    w = 2 * rng.normal(size=LATENTS)
    y = rng.uniform(size=ROWS) < 1 / (1 + np.exp(-x @ w))
    return jnp.asarray(x), jnp.asarray(y.astype("float32"))


def elbo_of(x, y):
    noise = jax.random.normal(jax.random.key(9), (4, LATENTS))
    noise = jnp.concatenate([noise, -noise])

    @jax.jit
    def elbo(mean, root):
        def log_joint(each):
            w = mean + root @ each
            logits = x @ w
            fit = (y * logits - jnp.logaddexp(0, logits)).sum()
            return fit + jax.scipy.stats.norm.logpdf(w).sum()

        constant = LATENTS / 2 * np.log(2 * np.pi * np.e)
        entropy = jnp.log(jnp.abs(jnp.diagonal(root))).sum() + constant
        return (lax.map(log_joint, noise).mean() + entropy) / (ROWS / 1000)

    return elbo


def follow(method, rate, svi, args, elbo, chunk):
    state, program, _ = numpyro_models.compiled(svi, args, chunk)
    cpu, step, mark = 0.0, 0, 0.0
    while cpu < SECONDS:
        began = numpyro_models.now()
        state = jax.block_until_ready(program(state))
        cpu, step = cpu + numpyro_models.now() - began, step + chunk
        if cpu < mark:
            continue
        mark = cpu * 1.15
        posterior = svi.guide.get_posterior(svi.get_params(state))
        value = float(elbo(*numpyro_models.moments(posterior)))
        found = (method, rate, step, f"{cpu:.3f}", f"{value:.4f}")
        row = dict(zip(FIELDS, found, strict=True))
        numpyro_models.append(numpyro_models.MINIBATCH, FIELDS, row)


def main():
    x, y = data()
    elbo, args = elbo_of(x, y), (x, y, BATCH)
    guide = natgrad.numpyro.AutoNatural(model)
    svi = SVI(model, guide, natgrad.numpyro.optimizer(), Trace_ELBO())
    follow("natgrad", "", svi, args, elbo, 1)
    for rate in RATES:
        guide = autoguide.AutoMultivariateNormal(model)
        svi = SVI(model, guide, optax.adam(rate), Trace_ELBO())
        follow("AutoMultivariateNormal", rate, svi, args, elbo, 20)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
