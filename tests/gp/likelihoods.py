"""Every kind of likelihood: the cases at which laws are tested."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from natgrad._quadrature import gauss_hermite
from natgrad.gp.likelihoods import (
    Bernoulli,
    Beta,
    FromDistribution,
    Gamma,
    Gaussian,
    HeteroskedasticGaussian,
    LearnedEdges,
    NegativeBinomial,
    Ordinal,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)
from natgrad.gp.likelihoods._base import expectation


EDGES = [-1.0, 0.2, 0.9]
REAL, POSITIVE, UNIT = [-0.7, 0.4, 3.0], [0.3, 1.1, 4.0], [0.02, 0.5, 0.9]
COUNTS, LABELS = [0, 2, 7], [0, 2, 1]

# Each with three targets.
LIKELIHOODS = {
    "Gaussian": (Gaussian(0.3), REAL),
    "StudentT": (StudentT(0.6, 4.0), REAL),
    "Gamma": (Gamma(2.5), POSITIVE),
    "Beta": (Beta(8.0), UNIT),
    "Beta(probit)": (Beta(8.0, "probit"), UNIT),
    "Bernoulli": (Bernoulli(), [0, 1, 1]),
    "Bernoulli(logit)": (Bernoulli("logit"), [0, 1, 1]),
    "Ordinal": (Ordinal(EDGES, 0.7), [0, 2, 3]),
    "Ordinal(learned)": (Ordinal(LearnedEdges(EDGES), 0.7), [0, 2, 3]),
    "Poisson": (Poisson(), COUNTS),
    "NegativeBinomial": (NegativeBinomial(0.4), COUNTS),
    "HeteroskedasticGaussian": (HeteroskedasticGaussian(), REAL),
    "RobustMax(3)": (RobustMax(3), LABELS),
    "RobustMax(10)": (RobustMax(10, 0.01), [0, 9, 4]),
    "Softmax": (Softmax(3, draws=512), LABELS),
    "FromDistribution": (
        FromDistribution(
            lambda f: dist.Gamma(2.5, 2.5 * jnp.exp(-f)), None, "positive"
        ),
        POSITIVE,
    ),
    "FromDistribution(2)": (
        FromDistribution(lambda f: dist.Normal(f[0], jnp.exp(f[1])), 2, draws=512),
        REAL,
    ),
}
OURS = [name for name in LIKELIHOODS if not name.startswith("From")]
# Those that differ from another kind by little, and take long.
ALIKE = ["Beta(probit)", "Ordinal(learned)"]


def cases(names):
    marks = lambda name: [pytest.mark.long] if name in ALIKE else []
    return [pytest.param(name, marks=marks(name)) for name in names]


def size(likelihood) -> tuple[int, ...]:
    return () if likelihood.latents is None else (likelihood.latents,)


def rows(name: str):
    """Three rows: means, variances, targets."""
    likelihood, y = LIKELIHOODS[name]
    rng = np.random.default_rng(3)
    shape = (3, *size(likelihood))
    mean, var = rng.normal(size=shape) / 2, rng.uniform(0.05, 0.6, shape)
    return jnp.asarray(mean), jnp.asarray(var), jnp.asarray(y)


def definition(likelihood, mean, var, y):
    """E[log p(y | f)] by 200 nodes for each latent."""
    rule = gauss_hermite(200)
    if isinstance(likelihood, RobustMax):
        more = RobustMax(likelihood.classes, likelihood.error, nodes=200)
        return more.expected_log_prob(mean, var, y)
    if likelihood.latents is None:
        return expectation(lambda f: likelihood.log_prob(f, y), mean, var, rule)
    inner = lambda g: expectation(
        lambda f: likelihood.log_prob(jnp.stack([f, g]), y), mean[0], var[0], rule
    )
    return expectation(inner, mean[1], var[1], rule)


def grid(likelihood):
    """Points and weights of a sum, or an integral, over all targets."""
    if hasattr(likelihood, "classes"):
        return np.arange(likelihood.classes), np.ones(likelihood.classes)
    if isinstance(likelihood, Bernoulli):
        return np.arange(2), np.ones(2)
    support = getattr(likelihood, "support", "real")
    if support == "count":
        return np.arange(500), np.ones(500)
    t = np.linspace(-40, 40, 601)
    at, slope = {
        "real": (np.sinh(t / 4), np.cosh(t / 4) / 4),
        "positive": (np.exp(t), np.exp(t)),
        "unit": (scipy.special.expit(t), scipy.stats.logistic.pdf(t)),
    }[support]
    inside = (at < 1) if support == "unit" else np.full(t.shape, True)
    return at[inside], (slope * (t[1] - t[0]))[inside]
