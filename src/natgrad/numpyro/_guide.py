"""A guide whose latent distributions are natgrad's."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import lax
from jaxtyping import Array
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.autoguide import AutoContinuous
from numpyro.infer.initialization import init_to_median
from numpyro.infer.util import helpful_support_errors

from natgrad._text import require_choice
from natgrad.errors import InputError
from natgrad.numpyro._blocks import (
    FAMILIES,
    GAUSSIANS,
    Block,
    Family,
    SiteBlock,
    Values,
    gaussian_blocks,
    site_block,
)


class AutoNatural(AutoContinuous):
    """A guide over all latent numbers, for natural-gradient steps.

    It is used as any automatic guide of NumPyro: with `SVI`, `Predictive`,
    `sample_posterior`, `median` and `quantiles`. Its parameter, `"auto_posterior"`, is
    a distribution of natgrad over the unconstrained space. Any optimizer can train it;
    `natgrad.numpyro.optimizer` takes natural steps.

    `family` is `"full"` or `"diagonal"`, for a Gaussian with full or with diagonal
    covariance, or a function of the initial mean and standard deviations which returns
    a distribution in the coordinates you want. By default the covariance is full for
    up to 300 latent numbers and diagonal for more. `"plates"` is for many groups: each
    element of a plate has a Gaussian of its own, and sites outside plates share one.

    `families` gives sites a distribution of their own, independent of the others:
    `"gamma"` for positive numbers, `"beta"` for numbers from 0 to 1, `"dirichlet"` for
    vectors that sum to 1. If such a site is conjugate, a step to it is exact.

    Raises:
        InputError: If `family` or `families` is none of these, if a site is not of the
            support of its family, or if `init_scale` is not positive.

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

    prototype_trace: Any

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        family: str | Family | None = None,
        families: Mapping[str, str] | None = None,
        prefix: str = "auto",
        init_loc_fn: Callable[..., Any] = init_to_median,
        init_scale: float = 0.1,
    ):
        known = (*GAUSSIANS, "plates")
        if isinstance(family, str):
            other = " or a function of the initial mean and standard deviations"
            require_choice("family", family, known, other)
        for site, name in (families or {}).items():
            require_choice(f"families[{site!r}]", name, FAMILIES)
        if not init_scale > 0:
            raise InputError(f"init_scale is {init_scale}; it should be positive")
        self._family, self._init_scale = family, init_scale
        self._families = dict(families or {})
        self._blocks: list[Block] = []
        super().__init__(model, prefix=prefix, init_loc_fn=init_loc_fn)

    def _setup_prototype(self, *args: object, **kwargs: object) -> None:
        super()._setup_prototype(*args, **kwargs)
        rest, sites = dict(self._init_locs), self.prototype_trace
        self._blocks = []
        for name, family in self._families.items():
            if rest.pop(name, None) is None:
                raise InputError(
                    f"families has {name!r}, which is not a latent site of the model"
                )
            transform = self._transform(name)
            self._blocks.append(site_block(name, family, sites[name], transform))
        self._blocks += gaussian_blocks(sites, rest, self._family)

    def _transform(self, name: str) -> Any:
        site = self.prototype_trace[name]
        with helpful_support_errors(site):
            return biject_to(site["fn"].support)

    def _key(self, block: Block) -> str:
        """What the names of a block's parameter and of its site begin with."""
        return f"{self.prefix}_{block.name}" if block.name else self.prefix

    def _get_posterior(self) -> dict[str, dist.Distribution]:
        """The distribution of each block, at the parameters of the guide."""
        posteriors = {}
        for block in self._blocks:
            # A tree, which NumPyro takes but does not say.
            initial: Any = block.initial(self._init_locs, self._init_scale)
            q = numpyro.param(f"{self._key(block)}_posterior", initial)
            posteriors[block.name] = block.posterior(q)
        return posteriors

    def __call__(self, *args: object, **kwargs: object) -> Values:
        """Draws a value of each latent site, as any guide does."""
        if self.prototype_trace is None:
            self._setup_prototype(*args, **kwargs)
        result, posteriors = {}, self._get_posterior()
        for block in self._blocks:
            draw: Any = numpyro.sample(
                f"_{self._key(block)}_latent",
                posteriors[block.name],
                infer={"is_auxiliary": True},
            )
            if isinstance(block, SiteBlock):
                result |= self._placed(block.name, draw, 0.0)
                continue
            for name, value in block.unpack(draw).items():
                transform = self._transform(name)
                moved = transform(value)
                density = -transform.log_abs_det_jacobian(value, moved)
                result |= self._placed(name, moved, density)
        return result

    def _placed(self, name: str, value: Array, log_density: Any) -> Values:
        """The site in the guide, at a value that was drawn."""
        event = self.prototype_trace[name]["fn"].event_dim
        density = 0.0 if numpyro.get_mask() is False else log_density
        extra = jnp.ndim(density) - jnp.ndim(value) + event
        density = sum_rightmost(density, extra) if jnp.ndim(density) else density
        fixed = dist.Delta(value, log_density=density, event_dim=event)
        return {name: numpyro.sample(name, fixed)}

    def get_posterior(self, params: dict[str, Any], site: str | None = None) -> Any:
        """The distribution of the block with a site, or of the Gaussian without plates.

        That of a Gaussian is over the unconstrained space, and `.q` is natgrad's own.

        Raises:
            InputError: If there is no such block.
        """
        for block in self._blocks:
            if site in block.sites if site else not block.name:
                return block.posterior(params[f"{self._key(block)}_posterior"])
        have = ", ".join(site for block in self._blocks for site in block.sites)
        raise InputError(f"site is {site}; it should be one of {have}")

    def sample_posterior(
        self,
        rng_key: Array,
        params: dict[str, Any],
        *args: object,
        sample_shape: tuple[int, ...] = (),
        **kwargs: object,
    ) -> Values:
        """Draws of each site, and of what the model computes from them."""

        def one(key: Array) -> Values:
            keys = jax.random.split(key, len(self._blocks))
            draws = {}
            for key, block in zip(keys, self._blocks, strict=True):
                q = params[f"{self._key(block)}_posterior"]
                draws |= block.unpack(block.posterior(q).sample(key))
            return self._constrained(draws, params)

        keys = jax.random.split(rng_key, math.prod(sample_shape))
        return _each(one, keys, sample_shape)

    def median(self, params: dict[str, Any]) -> Values:
        """The median of each site."""
        return self.quantiles(params, 0.5)

    def quantiles(self, params: dict[str, Any], quantiles: object) -> Values:
        """Quantiles of each site, for each of the given levels.

        Those of a site with a Dirichlet are divided by their sum.
        """

        def one(level: Array) -> Values:
            values = {}
            for block in self._blocks:
                q = params[f"{self._key(block)}_posterior"]
                values |= block.quantile(q, level)
            return self._constrained(values, params)

        levels = jnp.asarray(quantiles, float)
        return _each(one, levels.ravel(), levels.shape)

    def _constrained(self, values: Values, params: dict[str, Any]) -> Values:
        """The sites at unconstrained values, and what the model computes from them."""
        sites = self.prototype_trace
        is_param = lambda name: name in sites and sites[name]["type"] == "param"
        given = {name: value for name, value in params.items() if is_param(name)}
        found: Any = self._postprocess_fn({**values, **given})
        return {k: v for k, v in found.items() if k in sites and not is_param(k)}


def _each(function: Callable[[Any], Values], xs: Any, shape: tuple[int, ...]) -> Values:
    """The function of each entry of `xs`, one after the other, in the given shape."""
    results = lax.map(function, xs)
    return jax.tree.map(lambda x: x.reshape((*shape, *x.shape[1:])), results)
