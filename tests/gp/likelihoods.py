"""Every kind of likelihood: the cases at which laws are tested."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.stats

from natgrad._quadrature import gauss_hermite
from natgrad.gp import likelihoods
from natgrad.gp.likelihoods import Support
from natgrad.gp.likelihoods._base import expectation
from tests.points import EXTENSIONS
from tests.variants import variants


EDGES = [-1.0, 0.2, 0.9]
REAL, POSITIVE, UNIT = [-0.7, 0.4, 3.0], [0.3, 1.1, 4.0], [0.02, 0.5, 0.9]
COUNTS, LABELS = [0, 2, 7], [0, 2, 1]


class Case(NamedTuple):
    """A likelihood, three targets, and what is to be expected of it."""

    likelihood: Any
    targets: list[float]
    nodes_error: float = 1e-9  # of 20 nodes from 200, relative to 1 + |value|
    is_smooth: bool = True  # a kink is seen by every rule of quadrature
    is_log_concave: bool = False
    tail: float = 1e-12  # the probability beyond 1,000
    # The logarithm of what overflows first, as a function of mean and variance.
    log_size: Callable[..., Any] | None = None
    orders: int = 2  # JAX has no second derivative of incomplete gamma functions


def of_nine(link: str = "probit"):
    return likelihoods.Binomial(link).given(trials=jnp.asarray(9, float))


LIKELIHOODS = {
    "Gaussian": Case(likelihoods.Gaussian(0.3), REAL, is_log_concave=True),
    "StudentT": Case(likelihoods.StudentT(0.6, 4.0), REAL, nodes_error=2e-4, tail=1e-6),
    "Gamma": Case(
        likelihoods.Gamma(2.5),
        POSITIVE,
        is_log_concave=True,
        log_size=lambda mean, var: var / 2 - mean,
    ),
    "Beta": Case(likelihoods.Beta(8.0), UNIT),
    "Beta(probit)": Case(likelihoods.Beta(8.0, "probit"), UNIT),
    "Bernoulli": Case(likelihoods.Bernoulli(), [0, 1, 1], is_log_concave=True),
    "Bernoulli(logit)": Case(
        likelihoods.Bernoulli("logit"), [0, 1, 1], is_log_concave=True
    ),
    "Ordinal": Case(likelihoods.Ordinal(EDGES, 0.7), [0, 2, 3], is_log_concave=True),
    "Ordinal(learned)": Case(
        likelihoods.Ordinal(EDGES, 0.7, learn_edges=True),
        [0, 2, 3],
        is_log_concave=True,
    ),
    "Poisson": Case(
        likelihoods.Poisson(),
        COUNTS,
        is_log_concave=True,
        log_size=lambda mean, var: var / 2 + mean,
    ),
    "NegativeBinomial": Case(
        likelihoods.NegativeBinomial(0.4), COUNTS, is_log_concave=True
    ),
    "Weibull": Case(
        likelihoods.Weibull(1.6),
        POSITIVE,
        is_log_concave=True,
        log_size=lambda mean, var: 1.28 * var - 1.6 * mean + 3,
    ),
    "Censored": Case(
        likelihoods.Censored(likelihoods.Gaussian(0.3)), REAL, is_log_concave=True
    ),
    "Censored(StudentT)": Case(
        likelihoods.Censored(likelihoods.StudentT(0.6, 4.0)),
        REAL,
        nodes_error=2e-4,
        tail=1e-6,
    ),
    "ZeroInflatedPoisson": Case(
        likelihoods.ZeroInflatedPoisson(0.3),
        COUNTS,
        nodes_error=1e-5,
        log_size=lambda mean, var: var / 2 + mean,
    ),
    "ZeroInflatedNegativeBinomial": Case(
        likelihoods.ZeroInflatedNegativeBinomial(0.4, 0.3), COUNTS, nodes_error=1e-5
    ),
    "Binomial": Case(likelihoods.Binomial(), [0, 1, 1], is_log_concave=True),
    "Binomial(9)": Case(of_nine(), COUNTS, is_log_concave=True),
    "Binomial(9, logit)": Case(of_nine("logit"), COUNTS, is_log_concave=True),
    "HeteroskedasticGaussian": Case(
        likelihoods.HeteroskedasticGaussian(),
        REAL,
        log_size=lambda m, v: 2 * (v - m) + 5,
    ),
    "RobustMax(3)": Case(likelihoods.RobustMax(3), LABELS, nodes_error=1e-3),
    "RobustMax(10)": Case(likelihoods.RobustMax(10, 0.01), [0, 9, 4], nodes_error=1e-3),
    "Softmax": Case(likelihoods.Softmax(3, draws=512), LABELS),
    "FromDistribution": Case(
        likelihoods.FromDistribution(
            lambda f: dist.Gamma(2.5, 2.5 * jnp.exp(-f)), None, "positive"
        ),
        POSITIVE,
    ),
    "FromDistribution(2)": Case(
        likelihoods.FromDistribution(
            lambda f: dist.Normal(f[0], jnp.exp(f[1])), 2, draws=512
        ),
        REAL,
    ),
    "Quantile": Case(
        EXTENSIONS["Quantile"](jnp.asarray(0.3, float), 0.9),
        REAL,
        0.05,
        is_smooth=False,
    ),
    "LogNormal": Case(EXTENSIONS["LogNormal"](0.5), POSITIVE, is_log_concave=True),
}
TARGETS = {
    Support.REAL: REAL,
    Support.POSITIVE: POSITIVE,
    Support.UNIT: UNIT,
    Support.COUNT: COUNTS,
}
KINDS = {
    name: kind
    for name, kind in vars(likelihoods).items()
    if isinstance(kind, type)
    and issubclass(kind, likelihoods.AbstractLikelihood)
    and not name.startswith("Abstract")
    and kind is not likelihoods.LinearCoregionalization
}
# A likelihood needs a line above only if it has several forms, or is not as exact.
LIKELIHOODS |= {
    name: Case(kind.initial(3), TARGETS.get(kind.support, [0, 1, 1]), tail=1e-4)
    for name, kind in KINDS.items()
    if not any(type(case.likelihood) is kind for case in LIKELIHOODS.values())
}
OURS = [name for name in LIKELIHOODS if not name.startswith("From")]
# Those that differ from another kind by little, and take long.


def between(noise, lower: float, upper: float, **columns):
    """A row of any target that is known to be between these bounds."""
    bounds = {"lower": lower, "upper": upper} | columns
    bounds = {name: jnp.asarray(bound, float) for name, bound in bounds.items()}
    return likelihoods.Censored(noise).given(**bounds)


# Rows that say nothing of their own target, so that no sum over targets is one.
CENSORED = {
    "Gaussian, above": Case(
        between(likelihoods.Gaussian(0.3), 0.4, jnp.inf), REAL, is_log_concave=True
    ),
    "Gaussian, below": Case(
        between(likelihoods.Gaussian(0.3), -jnp.inf, 0.4), REAL, is_log_concave=True
    ),
    "Gaussian, between": Case(
        between(likelihoods.Gaussian(0.3), -0.5, 0.4), REAL, is_log_concave=True
    ),
    "Gaussian, known noise": Case(
        between(likelihoods.Gaussian(0.3), -0.5, 0.4, noise_sd=0.6),
        REAL,
        is_log_concave=True,
    ),
    "Gaussian, anywhere": Case(
        between(likelihoods.Gaussian(0.3), -jnp.inf, jnp.inf), REAL
    ),
    "Gaussian, observed": Case(between(likelihoods.Gaussian(0.3), 0.4, 0.4), REAL),
    "StudentT, above": Case(
        between(likelihoods.StudentT(0.6, 4.0), 0.4, jnp.inf), REAL, nodes_error=2e-4
    ),
    "StudentT, between": Case(
        between(likelihoods.StudentT(0.6, 4.5), -0.5, 0.4), REAL, nodes_error=2e-3
    ),
    "Weibull, above": Case(
        between(likelihoods.Weibull(1.6), 1.3, jnp.inf),
        POSITIVE,
        is_log_concave=True,
        log_size=lambda mean, var: 1.28 * var - 1.6 * mean + 3,
    ),
    "Weibull, between": Case(
        between(likelihoods.Weibull(1.6), 0.7, 1.3),
        POSITIVE,
        nodes_error=1e-6,
        log_size=lambda mean, var: 1.28 * var - 1.6 * mean + 3,
    ),
    "Weibull, observed": Case(
        between(likelihoods.Weibull(1.6), 1.3, 1.3),
        POSITIVE,
        log_size=lambda mean, var: 1.28 * var - 1.6 * mean + 3,
    ),
    "Gamma, above": Case(
        between(likelihoods.Gamma(2.5), 1.3, jnp.inf),
        POSITIVE,
        log_size=lambda mean, var: var / 2 - mean,
        orders=1,
    ),
    "Gamma, between": Case(
        between(likelihoods.Gamma(2.5), 0.7, 1.3),
        POSITIVE,
        log_size=lambda mean, var: var / 2 - mean,
        orders=1,
    ),
    # Whole bounds are steps of the distribution function.
    "Poisson, above": Case(between(likelihoods.Poisson(), 3.5, jnp.inf), COUNTS),
}
EVERY = LIKELIHOODS | CENSORED


ALIKE = (likelihoods.Beta, likelihoods.ZeroInflatedNegativeBinomial)
ALIKE += (likelihoods.Weibull, likelihoods.Binomial)
# One of each class that is not as another, and of the ways of censoring a row.
GATE = {type(case.likelihood): name for name, case in reversed(LIKELIHOODS.items())}
GATE = [
    *(name for kind, name in GATE.items() if kind not in ALIKE),
    "Binomial(9)",
    "Gaussian, between",
    "StudentT, above",
    "Weibull, observed",
]


def cases(names):
    return variants(names, [name for name in GATE if name in names])


def size(likelihood) -> tuple[int, ...]:
    return () if likelihood.latents is None else (likelihood.latents,)


def rows(name: str):
    """Three rows: means, variances, targets."""
    likelihood, y, *_ = EVERY[name]
    rng = np.random.default_rng(3)
    shape = (3, *size(likelihood))
    mean, var = rng.normal(size=shape) / 2, rng.uniform(0.05, 0.6, shape)
    return jnp.asarray(mean), jnp.asarray(var), jnp.asarray(y)


def is_monte_carlo(name: str) -> bool:
    return LIKELIHOODS[name].likelihood.how.startswith("Monte Carlo")


def definition(likelihood, mean, var, y):
    """E[log p(y | f)] by 200 nodes for each latent, of which there are one or two."""
    rule = gauss_hermite(200)
    if isinstance(likelihood, likelihoods.RobustMax):
        more = likelihoods.RobustMax(likelihood.classes, likelihood.error, nodes=200)
        return more.expected_log_prob(mean, var, y)
    if likelihood.latents is None:
        return expectation(lambda f: likelihood.log_prob(f, y), mean, var, rule)
    inner = lambda g: expectation(
        lambda f: likelihood.log_prob(jnp.stack([f, g]), y), mean[0], var[0], rule
    )
    return expectation(inner, mean[1], var[1], rule)


def optional(function, *args):
    """What a likelihood need not have."""
    try:
        return function(*args)
    except NotImplementedError:
        return None


def num_classes(likelihood) -> int | None:
    """How many classes it has, None for numbers."""
    f = jnp.zeros(size(likelihood))
    found = jax.eval_shape(lambda: optional(likelihood.probabilities, f, f + 1))
    return None if found is None else len(found)


def grid(likelihood):
    """Points and weights of a sum, or an integral, over all targets."""
    classes = num_classes(likelihood)
    support = likelihood.support
    if classes is not None or support.is_whole:
        return np.arange(classes or 500), np.ones(classes or 500)
    t = np.linspace(-40, 40, 601)
    at, slope = {
        "real": (np.sinh(t / 4), np.cosh(t / 4) / 4),
        "positive": (np.exp(t), np.exp(t)),
        "unit": (scipy.special.expit(t), scipy.stats.logistic.pdf(t)),
    }[support.value]
    inside = (at < 1) if support.value == "unit" else np.full(t.shape, True)
    return at[inside], (slope * (t[1] - t[0]))[inside]
