"""The blocks of a guide: which sites share a distribution, and which one it is."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import distributions as dist
from numpyro.distributions import biject_to, constraints

from natgrad.errors import InputError
from natgrad.families import beta, diagonal, dirichlet, gamma, gaussian
from natgrad.families._base import AbstractDistribution, is_distribution
from natgrad.linalg import Sqrt
from natgrad.positive import Log


FULL = 300
"""The most latent numbers for which the covariance is full by default."""

Family = Callable[[Any, Any], AbstractDistribution[Any]]
"""A distribution, from its mean and its standard deviations."""

Values = dict[str, Any]
"""What each site has."""


def full(mean: Array, scale: Array) -> gaussian.Moments:
    """A Gaussian with full covariance."""
    identity = jnp.eye(scale.shape[-1], dtype=scale.dtype)
    return gaussian.Moments(mean, Sqrt(jnp.einsum("...i,ij->...ij", scale, identity)))


def factorized(mean: Array, scale: Array) -> diagonal.Moments:
    """A Gaussian with diagonal covariance."""
    return diagonal.Moments(mean, Log(2 * jnp.log(scale)))


GAUSSIANS: dict[str, Family] = {"full": full, "diagonal": factorized}


class Latent(dist.Distribution):
    """A distribution of natgrad, with the methods that NumPyro calls."""

    _support = constraints.real_vector
    pytree_data_fields = ("q",)

    def __init__(self, q: AbstractDistribution[Any], shape: tuple[int, ...]):
        self.q = q
        super().__init__(batch_shape=(), event_shape=shape, validate_args=False)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return self.q.sample(key, sample_shape)

    def log_prob(self, value: Any, intermediates: object = None) -> Any:
        log_prob = self.q.log_prob(value)
        return log_prob.sum(tuple(range(1 - len(self.event_shape), 0)))

    @property
    def mean(self) -> Any:
        return location(self.q)

    @property
    def variance(self) -> Any:
        return scales(self.q) ** 2


def location(q: Any) -> Any:
    """The mean of a distribution over vectors."""
    return q.location() if hasattr(q, "location") else q.expectation()[0]


def scales(q: Any) -> Any:
    """The standard deviations of a distribution over vectors."""
    if isinstance(q, diagonal.AbstractDiagonal):
        return jnp.sqrt(q.variances())
    if isinstance(q, gaussian.AbstractGaussian):
        return jnp.sqrt((q.factor() ** 2).sum(-1))
    draws = q.sample(jax.random.key(0), (10_000,))
    return draws.std(0)


class GaussianBlock(NamedTuple):
    """Sites whose unconstrained values are a vector, or one per element of a plate.

    `shapes` has those of the values, and `axes` which of their axes are plates. The
    last axis of a draw is that of the vectors, and the plates are before it.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]
    axes: dict[str, tuple[int, ...]]
    plates: tuple[int, ...]
    make: Family

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.shapes)

    def initial(self, values: Values, scale: float) -> AbstractDistribution[Any]:
        """The distribution that a run starts from, at unconstrained values."""
        front = range(len(self.plates))
        parts = [
            jnp.moveaxis(values[site], self.axes[site], front) for site in self.sites
        ]
        mean = jnp.concatenate([x.reshape((*self.plates, -1)) for x in parts], -1)
        q = self.make(mean, jnp.full_like(mean, scale))
        if not is_distribution(q):
            raise InputError(
                f"family returned a {type(q).__name__}; it should return a "
                "distribution of natgrad.families"
            )
        return q

    def posterior(self, q: Any) -> Latent:
        """The distribution as NumPyro needs it."""
        total = sum(math.prod(shape) for shape in self.shapes.values())
        return Latent(q, (*self.plates, total // math.prod(self.plates)))

    def unpack(self, draw: Any) -> Values:
        """The unconstrained value of each site."""
        values, start, front = {}, 0, range(len(self.plates))
        for site, shape in self.shapes.items():
            axes = self.axes[site]
            rest = [size for axis, size in enumerate(shape) if axis not in axes]
            end = start + math.prod(rest)
            part = draw[..., start:end].reshape((*self.plates, *rest))
            values[site], start = jnp.moveaxis(part, front, axes), end
        return values

    def quantile(self, q: Any, level: ArrayLike) -> Values:
        """The unconstrained value of each site at a level of each of its numbers."""
        return self.unpack(location(q) + jax.scipy.stats.norm.ppf(level) * scales(q))


class SiteFamily(NamedTuple):
    """A family for the sites of a support, and what NumPyro calls its members."""

    support: str
    is_support: Callable[[Any], bool]
    make: Callable[[Any, float], AbstractDistribution[Any]]
    to_numpyro: Callable[[Any], dist.Distribution]


class SiteBlock(NamedTuple):
    """One site with a family of its own, whose draws are values of the site."""

    name: str
    family: SiteFamily
    transform: Any

    @property
    def sites(self) -> tuple[str, ...]:
        return (self.name,)

    def initial(self, values: Values, scale: float) -> AbstractDistribution[Any]:
        """The distribution that a run starts from, at unconstrained values."""
        return self.family.make(self.transform(values[self.name]), scale)

    def posterior(self, q: Any) -> dist.Distribution:
        """The distribution as NumPyro has it."""
        each = self.family.to_numpyro(q)
        return each.to_event(len(each.batch_shape))

    def unpack(self, draw: Any) -> Values:
        """The unconstrained value of the site."""
        return {self.name: self.transform.inv(draw)}

    def quantile(self, q: Any, level: ArrayLike) -> Values:
        """The unconstrained value of the site at a level of each of its numbers."""
        each = self.family.to_numpyro(q)
        if isinstance(each, dist.Dirichlet):
            parts = q.concentrations()
            each = dist.Beta(parts, parts.sum(-1, keepdims=True) - parts)
            values = inverse_cdf(each, level)
            return self.unpack(values / values.sum(-1, keepdims=True))
        return self.unpack(inverse_cdf(each, level))


Block = GaussianBlock | SiteBlock


def inverse_cdf(given: dist.Distribution, level: ArrayLike) -> Any:
    """Quantiles of gamma and beta distributions, by bisection."""
    transform = biject_to(given.support)
    mean = given.mean
    end = -jnp.log(jnp.finfo(mean.dtype).tiny) * jnp.ones_like(mean)

    def halved(_: object, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = ends
        middle = (low + high) / 2
        is_low = given.cdf(transform(middle)) < level
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    low, high = lax.fori_loop(0, 60, halved, (-end, end))
    return transform((low + high) / 2)


def is_between(low: float, high: float) -> Callable[[Any], bool]:
    """Whether a support is the numbers between two bounds."""

    def check(support: Any) -> bool:
        lower = getattr(support, "lower_bound", None)
        upper = getattr(support, "upper_bound", math.inf)
        if support.is_discrete or lower is None:
            return False
        # NumPy, as a compiled program would not know the numbers.
        return bool(np.all(lower == low) and np.all(upper == high))

    return check


def gamma_at(mean: Array, scale: float) -> gamma.ShapeRate:
    """A gamma with a standard deviation of about `scale` of the logarithm."""
    shape = jnp.full_like(mean, scale**-2)
    return gamma.ShapeRate(Log(jnp.log(shape)), Log(jnp.log(shape / mean)))


def beta_at(mean: Array, scale: float) -> beta.Concentrations:
    """A beta with a standard deviation of about `scale` of the log-odds."""
    a, b = scale**-2 / (1 - mean), scale**-2 / mean
    return beta.Concentrations(Log(jnp.log(a)), Log(jnp.log(b)))


def dirichlet_at(mean: Array, scale: float) -> dirichlet.Concentrations:
    """A Dirichlet whose logarithms have standard deviations of about `scale`."""
    total = mean.shape[-1] * scale**-2
    return dirichlet.Concentrations(Log(jnp.log(total * mean)))


FAMILIES = {
    "gamma": SiteFamily(
        "positive numbers",
        is_between(0.0, math.inf),
        gamma_at,
        lambda q: dist.Gamma(*q.shape_rate()),
    ),
    "beta": SiteFamily(
        "numbers from 0 to 1",
        is_between(0.0, 1.0),
        beta_at,
        lambda q: dist.Beta(*q.a_b()),
    ),
    "dirichlet": SiteFamily(
        "vectors of parts that sum to 1",
        lambda support: support is constraints.simplex,
        dirichlet_at,
        lambda q: dist.Dirichlet(q.concentrations()),
    ),
}


def site_block(name: str, family: str, site: Any, transform: Any) -> SiteBlock:
    """The block of a site with a family of its own."""
    support = site["fn"].support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    chosen = FAMILIES[family]
    if not chosen.is_support(support):
        raise InputError(
            f"families has {family!r} for the site {name!r}, whose support is "
            f"{support}; {family} is for {chosen.support}"
        )
    return SiteBlock(name, chosen, transform)


def gaussian_blocks(
    sites: dict[str, Any], values: Values, family: str | Family | None
) -> list[Block]:
    """A Gaussian over all sites, or one for each element of a plate and one more."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name in values:
        frames = sites[name]["cond_indep_stack"] if family == "plates" else []
        frames = tuple(sorted(frames, key=lambda frame: frame.dim))
        groups.setdefault(frames, []).append(name)
    blocks = []
    for frames, names in groups.items():
        shapes = {name: values[name].shape for name in names}
        axes = {
            name: tuple(len(sites[name]["fn"].batch_shape) + f.dim for f in frames)
            for name in names
        }
        plates = tuple(frame.size for frame in frames)
        size = sum(map(math.prod, shapes.values())) // math.prod(plates)
        make = full if size <= FULL else factorized
        if family not in (None, "plates"):
            make = GAUSSIANS[family] if isinstance(family, str) else family
        label = "_".join(frame.name for frame in frames)
        blocks.append(GaussianBlock(label, shapes, axes, plates, make))
    return blocks
