"""A guide whose latent distribution is one of natgrad's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.infer.autoguide import AutoContinuous
from numpyro.infer.initialization import init_to_median

from natgrad.errors import InputError
from natgrad.families import diagonal, gaussian
from natgrad.families._base import AbstractDistribution, is_distribution
from natgrad.linalg import Sqrt
from natgrad.positive import Log


FULL = 300
"""The most latent numbers for which the covariance is full by default."""

Family = Callable[[Any, Any], AbstractDistribution[Any]]
"""A distribution, from its mean and its standard deviations."""


def full(mean: Any, scale: Any) -> gaussian.Moments:
    """A Gaussian with full covariance."""
    return gaussian.Moments(mean, Sqrt(jnp.diag(scale)))


def factorized(mean: Any, scale: Any) -> diagonal.Moments:
    """A Gaussian with diagonal covariance."""
    return diagonal.Moments(mean, Log(2 * jnp.log(scale)))


FAMILIES: dict[str, Family] = {"full": full, "diagonal": factorized}


class Latent(dist.Distribution):
    """A distribution of natgrad, with the methods that NumPyro calls."""

    _support = constraints.real_vector
    pytree_data_fields = ("q",)

    def __init__(self, q: AbstractDistribution[Any], size: int):
        self.q = q
        super().__init__(batch_shape=(), event_shape=(size,), validate_args=False)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return self.q.sample(key, sample_shape)

    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        return self.q.log_prob(value)

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


class AutoNatural(AutoContinuous):
    """A guide over all latent numbers, for natural-gradient steps.

    It is used as any automatic guide of NumPyro: with `SVI`, `Predictive`,
    `sample_posterior`, `median` and `quantiles`. Its one parameter,
    `"auto_posterior"`, is a distribution of natgrad over the unconstrained space. Any
    optimizer can train it; `natgrad.numpyro.optimizer` takes natural steps.

    `family` is `"full"` or `"diagonal"`, for a Gaussian with full or with diagonal
    covariance, or a function of the initial mean and standard deviations which returns
    a distribution in the coordinates you want. By default the covariance is full for
    up to 300 latent numbers and diagonal for more.

    Raises:
        InputError: If `family` is none of these, or `init_scale` is not positive.

    >>> import numpyro
    >>> from numpyro import distributions as dist
    >>> def model(y):
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 0.5), obs=y)
    >>> guide = natgrad.numpyro.AutoNatural(model)
    >>> steps = natgrad.numpyro.optimizer()
    >>> svi = numpyro.infer.SVI(model, guide, steps, numpyro.infer.Trace_ELBO())
    >>> params = svi.run(jax.random.key(0), 1, 10.0, progress_bar=False).params
    >>> print(f"{guide.median(params)['x']:.2f}")  # one step is exact
    8.00
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        family: str | Family | None = None,
        prefix: str = "auto",
        init_loc_fn: Callable[..., Any] = init_to_median,
        init_scale: float = 0.1,
    ):
        if isinstance(family, str) and family not in FAMILIES:
            raise InputError(
                f"family is {family!r}; it should be one of {', '.join(FAMILIES)} or a "
                "function of the initial mean and standard deviations"
            )
        if not init_scale > 0:
            raise InputError(f"init_scale is {init_scale}; it should be positive")
        self._family, self._init_scale = family, init_scale
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn)

    def _initial(self) -> AbstractDistribution[Any]:
        family = self._family
        if family is None:
            family = "full" if self.latent_dim <= FULL else "diagonal"
        make = FAMILIES[family] if isinstance(family, str) else family
        mean = self._init_latent
        q = make(mean, jnp.full_like(mean, self._init_scale))
        if not is_distribution(q):
            raise InputError(
                f"family returned a {type(q).__name__}; it should return a "
                "distribution of natgrad.families"
            )
        return q

    def _get_posterior(self) -> Latent:
        initial: Any = self._initial()  # a tree, which NumPyro takes but does not say
        q: Any = numpyro.param(f"{self.prefix}_posterior", initial)
        return Latent(q, self.latent_dim)

    def get_posterior(self, params: dict[str, Any]) -> Latent:
        """The distribution over the unconstrained space; `.q` is natgrad's own."""
        return Latent(params[f"{self.prefix}_posterior"], self.latent_dim)

    def median(self, params: dict[str, Any]) -> dict[str, Any]:
        """The median of each site."""
        mean = self.get_posterior(params).mean
        return self._unpack_and_constrain(mean, params)

    def quantiles(self, params: dict[str, Any], quantiles: Any) -> dict[str, Any]:
        """Quantiles of each site, for each of the given levels."""
        posterior = self.get_posterior(params)
        levels = jnp.asarray(quantiles)[..., None]
        deviations = jax.scipy.stats.norm.ppf(levels) * scales(posterior.q)
        return self._unpack_and_constrain(posterior.mean + deviations, params)
