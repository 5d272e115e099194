"""Any distribution with a density, NumPyro's or one's own, as a likelihood."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from natgrad._text import require_choice
from natgrad.gp.likelihoods._base import AbstractNumerical, Latent, Scalar, Target
from natgrad.gp.likelihoods._support import Support


class FromDistribution(AbstractNumerical):
    """A likelihood from a function of f that returns a distribution with `log_prob`.

        FromDistribution(lambda f: numpyro.distributions.Gamma(3.0, jnp.exp(-f)))

    If the function has parameters to learn, make it an `eqx.Module`, or a
    `jax.tree_util.Partial` with them as its arguments. natgrad averages over one latent
    function by quadrature, over several by Monte Carlo. Moments, quantiles and samples
    need a distribution with `mean` and `variance`, `cdf` and `sample`. For quantiles,
    name the `support`.

    Raises:
        InputError: If `support` is not the value of a `Support`.

    >>> import numpyro.distributions as dist
    >>> likelihood = gp.likelihoods.FromDistribution(lambda f: dist.Laplace(f, 0.5))
    >>> print(f"{likelihood.log_prob(jnp.array(0.0), jnp.array(1.0)):.2f}")
    -2.00
    """

    file_instead = "a natgrad.gp.likelihoods.AbstractQuadrature"
    distribution: Any  # from f to a distribution
    _latents: int | None = eqx.field(static=True)
    support: Support = eqx.field(static=True)
    nodes: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(
        self,
        distribution: Callable[[Latent], Any],
        latents: int | None = None,
        support: str = "real",
        *,
        nodes: int = 20,
        draws: int = 128,
        seed: int = 0,
    ):
        require_choice("support", support, [each.value for each in Support])
        # A plain function is no tree of arrays, and a Partial of it is.
        is_tree = isinstance(distribution, eqx.Module | jax.tree_util.Partial)
        partial = jax.tree_util.Partial
        self.distribution = distribution if is_tree else partial(distribution)
        self._latents, self.support = latents, Support(support)
        self.nodes, self.draws, self.seed = nodes, draws, seed

    @property
    def latents(self) -> int | None:
        return self._latents

    def log_prob(self, f: Latent, y: Target) -> Scalar:
        return self.distribution(f).log_prob(y)

    def conditional_moments(self, f: Latent) -> tuple[Scalar, Scalar]:
        distribution = self.distribution(f)
        moments = distribution.mean, distribution.variance
        # NumPyro has them as properties and Distrax as methods.
        mean, variance = (x() if callable(x) else x for x in moments)
        return jnp.asarray(mean, f.dtype), jnp.asarray(variance, f.dtype)

    def cdf(self, f: Latent, y: Target) -> Scalar:
        return self.distribution(f).cdf(y)

    def sample(self, key: PRNGKeyArray, f: Latent) -> Target:
        sample = self.distribution(f).sample
        name = "seed" if "seed" in inspect.signature(sample).parameters else "key"
        return sample(**{name: key})
