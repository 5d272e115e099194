"""A small sparse Gaussian process, to try optimizers on.

The posterior is over whitened values at M inducing inputs, u = Lₖ v with v ~ N(0, I)
before any data, so a row of features a = Lₖ⁻¹ k(Z, x) is all that is needed of a datum.
With fixed hyperparameters the features are computed once. There are C latent functions,
one but for robust-max, and they are the batch of the posterior.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, log_ndtr
from jaxtyping import Array, Float

from natgrad import linalg
from natgrad.families import gaussian
from natgrad.linalg import _triangular as triangular


JITTER = 1e-10
NODES, WEIGHTS = np.polynomial.hermite.hermgauss(20)
WEIGHTS = WEIGHTS / math.sqrt(math.pi)

Latent = Float[Array, "C B"]
Targets = Float[Array, " B"]
Likelihood = Callable[[Latent, Latent, Targets, Float[Array, ""]], Targets]


# Data


class Split(NamedTuple):
    """The rows to learn from, scaled, and where the inducing inputs start."""

    x: np.ndarray
    y: np.ndarray
    inducing: np.ndarray


def outliers() -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of two inputs, known to 0.05, with 15 % of gross outliers."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (1000, 2))
    smooth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 * np.cos(x[:, 1])
    y = smooth + 0.05 * rng.standard_normal(len(x))
    is_outlier = rng.random(len(x)) < 0.15
    y[is_outlier] += 10 * rng.standard_normal(is_outlier.sum())
    return x, y


def three_classes() -> tuple[np.ndarray, np.ndarray]:
    """Three classes on a line: the example of GPflow's issue 820."""
    x = np.linspace(-10, 10, 2000)
    return x[:, None], np.digitize(np.arange(2000), [1000, 1500]).astype(float)


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and the target, the last column, of a table in $NATGRAD_DATA."""
    import pyarrow.parquet

    if "NATGRAD_DATA" not in os.environ:
        raise ValueError(f"NATGRAD_DATA is not set; it is the folder of {name}.parquet")
    path = Path(os.environ["NATGRAD_DATA"]) / f"{name}.parquet"
    columns = pyarrow.parquet.read_table(path).columns
    rows = np.stack([np.asarray(column, float) for column in columns], -1)
    return rows[:, :-1], rows[:, -1]


def split(
    x: np.ndarray, y: np.ndarray, seed: int, inducing: int, is_regression: bool
) -> Split:
    """A random nine tenths of the rows, with k-means centres as inducing inputs."""
    from sklearn.cluster import KMeans

    rows = np.random.default_rng(1000 + seed).permutation(len(y))[len(y) // 10 :]
    x, y = x[rows], y[rows]
    deviation = x.std(0)
    is_constant = deviation < 1e-12 * np.maximum(1, np.abs(x.mean(0)))
    x = (x - x.mean(0)) / np.where(is_constant, 1, deviation)
    if is_regression:
        y = (y - y.mean()) / y.std()
    means = KMeans(inducing, n_init="auto", random_state=seed).fit(x)
    return Split(x, y, means.cluster_centers_)


def minibatches(num_data: int, rows: int, steps: int, seed: int) -> np.ndarray:
    """Row numbers of `steps` batches, without replacement within an epoch."""
    rng = np.random.default_rng(seed)
    per_epoch = num_data // rows
    epochs = [
        rng.permutation(num_data)[: per_epoch * rows].reshape(per_epoch, rows)
        for _ in range(-(-steps // per_epoch))
    ]
    return np.concatenate(epochs)[:steps]


# Expected log-likelihoods


def by_quadrature(log_prob: Callable[..., Array]) -> Likelihood:
    """E[log p(y | f)] for f ~ N(mean, var), by 20-point Gauss–Hermite."""

    def expected(mean: Latent, var: Latent, y: Targets, scale: Array) -> Targets:
        nodes, weights = jnp.asarray(NODES), jnp.asarray(WEIGHTS)
        spread = jnp.sqrt(2 * var[0])[:, None]
        f = mean[0][:, None] + spread * nodes[None, :]
        return log_prob(f, y[:, None], scale) @ weights

    return expected


def expected_gaussian(mean: Latent, var: Latent, y: Targets, scale: Array) -> Targets:
    error = (y - mean[0]) ** 2 + var[0]
    return -(error / scale**2 + jnp.log(2 * math.pi * scale**2)) / 2


def student_t(f: Array, y: Array, scale: Array) -> Array:
    """Three degrees of freedom."""
    constant = gammaln(2.0) - gammaln(1.5) - math.log(3 * math.pi) / 2
    return constant - jnp.log(scale) - 2 * jnp.log1p(((y - f) / scale) ** 2 / 3)


def bernoulli(f: Array, y: Array, _: Array) -> Array:
    return log_ndtr(jnp.where(y > 0, f, -f))


def expected_robust_max(mean: Latent, var: Latent, y: Targets, _: Array) -> Targets:
    """The largest latent function names the class, but for one label in a thousand."""
    classes, error = mean.shape[0], 1e-3
    is_own = jnp.arange(classes)[:, None] == y.astype(int)[None, :]
    own = lambda x: jnp.where(is_own, x, 0).sum(0)
    spread = jnp.sqrt(2 * own(var))[:, None]
    f = own(mean)[:, None] + spread * jnp.asarray(NODES)[None, :]
    z = (f[None] - mean[..., None]) / jnp.sqrt(var)[..., None]
    is_largest = jnp.exp(jnp.where(is_own[..., None], 0, log_ndtr(z)).sum(0))
    p = is_largest @ jnp.asarray(WEIGHTS)
    return p * math.log1p(-error) + (1 - p) * math.log(error / (classes - 1))


LIKELIHOODS: dict[str, Likelihood] = {
    "Gaussian": expected_gaussian,
    "Student-t": by_quadrature(student_t),
    "Bernoulli": by_quadrature(bernoulli),
    "robust-max": expected_robust_max,
}


# Model


class Rows(NamedTuple):
    """What the model needs of its data: features, what they leave of k(x, x), and y."""

    features: Float[Array, "B M"]
    rest: Targets
    y: Targets


def matern52(
    x: Float[Array, "N D"], z: Float[Array, "M D"], lengthscale: Any, variance: Any
) -> Float[Array, "N M"]:
    x, z = x / lengthscale, z / lengthscale
    norms = (x**2).sum(-1)[:, None] + (z**2).sum(-1)[None, :]
    squared = norms - 2 * x @ z.T
    # The root has no derivative at zero, where the kernel is smooth.
    r = jnp.sqrt(5 * jnp.where(squared > 0, squared, 1e-36))
    return variance * (1 + r + r**2 / 3) * jnp.exp(-r)


def rows_of(
    x: Float[Array, "B D"],
    y: Targets,
    inducing: Float[Array, "M D"],
    lengthscale: Any,
    variance: Any,
) -> Rows:
    prior = matern52(inducing, inducing, lengthscale, variance)
    prior += JITTER * variance * triangular.eye_like(prior)
    cross = matern52(inducing, x, lengthscale, variance)
    root = jnp.linalg.cholesky(triangular.symmetric(prior))
    features = solve_triangular(root, cross, lower=True).T
    return Rows(features, jnp.maximum(variance - (features**2).sum(-1), 0), y)


def prior(latents: int, inducing: int) -> gaussian.Moments:
    """N(0, I), where the posterior starts."""
    mean = jnp.zeros((latents, inducing))
    root = jnp.broadcast_to(jnp.eye(inducing), (latents, inducing, inducing))
    return gaussian.Moments(mean, linalg.Sqrt(root))


def prior_in_theta(latents: int, inducing: int) -> gaussian.Canonical:
    """The same in θ itself, where the paper's step is taken."""
    q = prior(latents, inducing)
    return gaussian.Canonical(
        q.mean, linalg.Full(triangular.eye_like(q.cov.matrix()) / 2)
    )


def loss(
    q: gaussian.AbstractGaussian,
    rows: Rows,
    likelihood: Likelihood,
    scale: Array,
    num_data: int,
) -> Float[Array, ""]:
    """Minus the evidence bound in nats, estimated from some of the rows."""
    factor = q.factor()
    mean = q.location() @ rows.features.T
    var = rows.rest[None, :] + ((rows.features[None] @ factor) ** 2).sum(-1)
    fit = likelihood(mean, var, rows.y, scale)
    return q.kl(prior(mean.shape[0], factor.shape[-1])).sum() - num_data * fit.mean()
