"""Twelve NumPyro models with made-up data: what people fit, from easy to hard."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {}
"""Each gives a model and its arguments."""


def entry(make):
    MODELS[make.__name__] = make
    return make


def rng():
    return np.random.default_rng(0)


@entry
def eight_schools():
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    s = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def model(s, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("J", 8):
            t = numpyro.sample("t", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + tau * t, s), obs=y)

    return model, (s, y)


@entry
def logistic():
    r = rng()
    x = r.normal(size=(300, 10))
    w = r.normal(size=10)
    y = (r.uniform(size=300) < 1 / (1 + np.exp(-x @ w))).astype(float)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 2))
        w = numpyro.sample("w", dist.Normal(jnp.zeros(10), 2).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)

    return model, (x, y)


@entry
def hierarchical_poisson():
    r = rng()
    g = np.repeat(np.arange(15), 8)
    a = 1 + 0.6 * r.normal(size=15)
    x = r.normal(size=120)
    y = r.poisson(np.exp(a[g] + 0.4 * x)).astype(float)

    def model(g, x, y):
        mu = numpyro.sample("mu", dist.Normal(0, 2))
        s = numpyro.sample("s", dist.HalfNormal(1))
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("G", 15):
            a = numpyro.sample("a", dist.Normal(mu, s))
        numpyro.sample("y", dist.Poisson(jnp.exp(a[g] + b * x)), obs=y)

    return model, (g, x, y)


@entry
def horseshoe():
    r = rng()
    x = r.normal(size=(60, 20))
    w = np.zeros(20)
    w[:3] = [2, -1.5, 1]
    y = x @ w + 0.5 * r.normal(size=60)

    def model(x, y):
        tau = numpyro.sample("tau", dist.HalfCauchy(0.1))
        lam = numpyro.sample("lam", dist.HalfCauchy(jnp.ones(20)).to_event(1))
        z = numpyro.sample("z", dist.Normal(jnp.zeros(20), 1).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(x @ (tau * lam * z), s), obs=y)

    return model, (x, y)


@entry
def latent_gp():
    r = rng()
    x = np.linspace(0, 1, 40)
    y = r.poisson(np.exp(1 + np.sin(6 * x))).astype(float)

    def model(x, y):
        scale = numpyro.sample("l", dist.InverseGamma(5, 1))
        v = numpyro.sample("v", dist.HalfNormal(1))
        m = numpyro.sample("m", dist.Normal(0, 2))
        k = v**2 * jnp.exp(-0.5 * (x[:, None] - x) ** 2 / scale**2) + 1e-6 * jnp.eye(40)
        z = numpyro.sample("z", dist.Normal(jnp.zeros(40), 1).to_event(1))
        numpyro.sample(
            "y", dist.Poisson(jnp.exp(m + jnp.linalg.cholesky(k) @ z)), obs=y
        )

    return model, (x, y)


@entry
def stochastic_volatility():
    r = rng()
    h = np.zeros(100)
    for t in range(1, 100):
        h[t] = 0.95 * h[t - 1] + 0.3 * r.normal()
    y = np.exp(h / 2) * r.normal(size=100)

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        phi = numpyro.sample("phi", dist.Beta(20, 1.5))
        s = numpyro.sample("s", dist.HalfNormal(0.5))
        z = numpyro.sample("z", dist.Normal(jnp.zeros(100), 1).to_event(1))

        def body(h, z):
            h = phi * h + s * z
            return h, h

        h0 = s / jnp.sqrt(1 - phi**2) * z[0]
        _, h = jax.lax.scan(body, h0, z[1:])
        h = jnp.concatenate([h0[None], h])
        numpyro.sample("y", dist.Normal(0, jnp.exp((mu + h) / 2)), obs=y)

    return model, (y,)


@entry
def item_response():
    r = rng()
    a = r.normal(size=30)
    d = r.normal(size=12)
    k = np.exp(0.3 * r.normal(size=12))
    y = (r.uniform(size=(30, 12)) < 1 / (1 + np.exp(-k * (a[:, None] - d)))).astype(
        float
    )

    def model(y):
        k = numpyro.sample("k", dist.LogNormal(jnp.zeros(12), 0.5).to_event(1))
        d = numpyro.sample("d", dist.Normal(jnp.zeros(12), 1.5).to_event(1))
        a = numpyro.sample("a", dist.Normal(jnp.zeros(30), 1).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=k * (a[:, None] - d)), obs=y)

    return model, (y,)


@entry
def mixture():
    r = rng()
    y = np.concatenate([r.normal(-2, 0.7, 60), r.normal(1.5, 1, 90)])

    def model(y):
        w = numpyro.sample("w", dist.Beta(2, 2))
        first = numpyro.sample("first", dist.Normal(-1, 2))
        gap = numpyro.sample("gap", dist.HalfNormal(4))
        m = jnp.stack([first, first + gap])
        s = numpyro.sample("s", dist.LogNormal(jnp.zeros(2), 0.5).to_event(1))
        numpyro.sample(
            "y",
            dist.MixtureSameFamily(
                dist.Categorical(jnp.stack([w, 1 - w])), dist.Normal(m, s)
            ),
            obs=y,
        )

    return model, (y,)


@entry
def autoregression():
    r = rng()
    y = np.zeros(150)
    for t in range(2, 150):
        y[t] = 0.3 + 0.5 * y[t - 1] + 0.2 * y[t - 2] + 0.5 * r.normal()

    def model(y):
        a = numpyro.sample("a", dist.Normal(0, 1))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(2), 0.5).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
        numpyro.sample(
            "y", dist.StudentT(nu, a + b[0] * y[1:-1] + b[1] * y[:-2], s), obs=y[2:]
        )

    return model, (y,)


@entry
def survival():
    r = rng()
    x = r.normal(size=(120, 4))
    t = r.weibull(1.5, size=120) * np.exp(x @ np.array([0.5, -0.3, 0, 0.2]) + 1)
    c = r.exponential(6, size=120)
    y = np.minimum(t, c)
    e = (t <= c).astype(float)

    def model(x, y, e):
        k = numpyro.sample("k", dist.LogNormal(0, 0.5))
        b = numpyro.sample("b", dist.Normal(0, 2))
        w = numpyro.sample("w", dist.Normal(jnp.zeros(4), 1).to_event(1))
        scale = jnp.exp(b + x @ w)
        u = (y / scale) ** k
        numpyro.factor(
            "ll",
            (
                e
                * (
                    jnp.log(k)
                    - jnp.log(scale)
                    + (k - 1) * (jnp.log(y) - jnp.log(scale))
                )
                - u
            ).sum(),
        )

    return model, (x, y, e)


@entry
def network():
    r = rng()
    x = r.uniform(-2, 2, size=(100, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * r.normal(size=100)

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros((2, 8)), 1).to_event(2))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(8), 1).to_event(1))
        v = numpyro.sample("v", dist.Normal(jnp.zeros(8), 1).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(jnp.tanh(x @ w + b) @ v, s), obs=y)

    return model, (x, y)


@entry
def beta_regression():
    r = rng()
    x = r.normal(size=(100, 5))
    m = 1 / (1 + np.exp(-x @ np.array([0.5, -0.5, 0.3, 0, 0]) - 0.2))
    y = np.clip(r.beta(10 * m, 10 * (1 - m)), 1e-4, 1 - 1e-4)

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 2))
        w = numpyro.sample("w", dist.Normal(jnp.zeros(5), 1).to_event(1))
        k = numpyro.sample("k", dist.HalfNormal(20))
        m = jax.nn.sigmoid(b + x @ w)
        numpyro.sample("y", dist.Beta(k * m, k * (1 - m)), obs=y)

    return model, (x, y)
