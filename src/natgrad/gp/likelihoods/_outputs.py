"""Several outputs, each a mixture of latent functions: LinearCoregionalization."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.gp._parameters import Numbers, as_floats, form
from natgrad.gp.likelihoods._base import AbstractLikelihood, Scalar


Latents = Float[Array, " L"]
Outputs = Float[Array, " P"]
Targets = Num[Array, " P"]


class LinearCoregionalization(AbstractLikelihood):
    """Several outputs, each with a function f = W g + b that mixes latent functions g.

    `likelihoods` has one p(y | f) per output, or is one for all, of which each output
    gets its own copy. The mixing matrix W, [P, L], is a parameter; so is the `offset`
    b, [P], if you give one. The target of a row is a vector, [P]. NaN is an output that
    was not observed: the row does not count for it.

    The latent functions are independent under q. Predictions are those of each output
    alone: outputs share latent functions, so the density of a row is not a product.

    Raises:
        InputError: If the shapes do not fit, or a likelihood has several latent
            functions of its own.

    >>> mixing = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]
    >>> noise = gp.likelihoods.Gaussian(0.1)
    >>> likelihood = gp.likelihoods.LinearCoregionalization(noise, mixing)
    >>> likelihood.latents, likelihood.outputs
    (2, 3)
    >>> mean, variance = likelihood.moments(jnp.array([1.0, 2.0]), jnp.full(2, 0.5))
    >>> print(mean, variance)
    [1. 2. 2.] [0.6 0.6 0.6]
    """

    file_fields = ("likelihoods", "mixing", "offset")  # its constructor's arguments
    groups: tuple[AbstractLikelihood, ...]  # those of one kind as one, of many numbers
    places: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of their outputs
    mixing: Float[Array, "P L"]
    offset: Float[Array, " P"] | None

    def __init__(
        self,
        likelihoods: AbstractLikelihood | Sequence[Any],
        mixing: Numbers,
        offset: Numbers | None = None,
    ):
        self.mixing = as_floats(mixing)
        if self.mixing.ndim != 2 or not self.mixing.size:
            raise InputError(
                f"mixing has shape {list(self.mixing.shape)}; it should be a row for "
                "each output and a column for each latent function"
            )
        if isinstance(likelihoods, AbstractLikelihood):
            likelihoods = [likelihoods] * len(self.mixing)
        self.offset = None if offset is None else as_floats(offset)
        self._check(likelihoods)
        places: dict[Any, list[int]] = {}
        for place, each in enumerate(likelihoods):
            places.setdefault(form(each) or place, []).append(place)
        self.places = tuple(map(tuple, places.values()))
        self.groups = tuple(
            _stacked([likelihoods[place] for place in group]) for group in self.places
        )

    def _check(self, likelihoods: Sequence[Any]) -> None:
        number = len(self.mixing)
        if len(likelihoods) != number:
            raise InputError(
                f"there are {len(likelihoods)} likelihoods and {number} rows of "
                "mixing; there should be one of each for each output"
            )
        for place, each in enumerate(likelihoods):
            if not isinstance(each, AbstractLikelihood):
                raise InputError(
                    f"the likelihood of output {place} is {each!r}; it should be one "
                    "of those in natgrad.gp.likelihoods"
                )
            if each.latents is not None or each.outputs is not None:
                raise InputError(
                    f"output {place} has {type(each).__name__}, which has several "
                    "latent functions of its own; it should have one, as Gaussian has"
                )
        if self.offset is not None and self.offset.shape != (number,):
            raise InputError(
                f"offset has shape {list(self.offset.shape)}; it should be one number "
                f"for each of the {number} outputs"
            )

    @property
    def likelihoods(self) -> tuple[AbstractLikelihood, ...]:
        """The likelihood of each output."""
        found: dict[int, AbstractLikelihood] = {}
        for own, group in zip(self.groups, self.places, strict=True):
            for at, place in enumerate(group):
                one = lambda leaf, at=at: leaf[at]
                found[place] = own if len(group) == 1 else jax.tree.map(one, own)
        return tuple(found[place] for place in range(self.outputs))

    @property
    def latents(self) -> int:
        return self.mixing.shape[1]

    @property
    def outputs(self) -> int:
        return len(self.mixing)

    @property
    def points(self) -> int:
        # A chunk of rows is for so many points of each latent function.
        return -(
            -self.outputs * max(each.points for each in self.groups) // self.latents
        )

    @property
    def how(self) -> str:
        return "; ".join(dict.fromkeys(each.how for each in self.groups))

    def mixed(self, f: Latents) -> Outputs:
        """The function of each output."""
        mixed = jnp.matmul(self.mixing.astype(f.dtype), f, precision="highest")
        return mixed if self.offset is None else mixed + self.offset.astype(f.dtype)

    def marginals(self, mean: Latents, var: Latents) -> tuple[Outputs, Outputs]:
        """The mean and the variance of the function of each output."""
        square = self.mixing.astype(var.dtype) ** 2
        return self.mixed(mean), jnp.matmul(square, var, precision="highest")

    def log_prob(self, f: Latents, y: Targets) -> Scalar:
        f, is_seen = self.mixed(f), ~jnp.isnan(y)
        each = self._each("log_prob", jnp.where(is_seen, f, 0), self._filled(y))
        return jnp.where(is_seen, each, 0).sum()

    def expected_log_prob(self, mean: Latents, var: Latents, y: Targets) -> Scalar:
        mean, var = self.marginals(mean, var)
        # All that belongs to an output without a target is replaced, so that whatever
        # its value and its derivative would be there, they are 0.
        is_seen = ~jnp.isnan(y)
        mean, var = jnp.where(is_seen, mean, 0), jnp.where(is_seen, var, 1)
        each = self._each("expected_log_prob", mean, var, self._filled(y))
        return jnp.where(is_seen, each, 0).sum()

    def log_predictive(self, mean: Latents, var: Latents, y: Targets) -> Outputs:
        """log E[p(y | f)] of each output alone; NaN where it was not observed."""
        each = self._each("log_predictive", *self.marginals(mean, var), self._filled(y))
        return jnp.where(jnp.isnan(y), jnp.nan, each)

    def moments(self, mean: Latents, var: Latents) -> tuple[Outputs, Outputs]:
        return self._each("moments", *self.marginals(mean, var))

    def quantile(self, mean: Latents, var: Latents, level: Scalar) -> Outputs:
        mean, var = self.marginals(mean, var)
        return self._each("quantile", mean, var, jnp.full_like(mean, level))

    def predictive_cdf(self, mean: Latents, var: Latents, y: Targets) -> Outputs:
        each = self._each("predictive_cdf", *self.marginals(mean, var), self._filled(y))
        return jnp.where(jnp.isnan(y), jnp.nan, each)

    def sample(self, key: PRNGKeyArray, f: Latents) -> Outputs:
        keys = jax.random.split(key, self.outputs)
        return self._each("sample", keys, self.mixed(f))

    def check(self, y: np.ndarray) -> None:
        filled = np.where(np.isnan(y), self._allowed(), y)
        for place, each in enumerate(self.likelihoods):
            try:
                each.check(filled[:, place])
            except InputError as error:
                raise InputError(f"output {place}: {error}") from None

    def _filled(self, y: Targets) -> Targets:
        """The targets, with one that the likelihood allows in place of NaN."""
        return jnp.where(jnp.isnan(y), jnp.asarray(self._allowed(), y.dtype), y)

    def _allowed(self) -> np.ndarray:
        """A target that each likelihood allows."""
        allowed = np.zeros(self.outputs)
        for own, group in zip(self.groups, self.places, strict=True):
            allowed[list(group)] = own.support.inside
        return allowed

    def _each(self, method: str, *arguments: Array) -> Any:
        """A method of each output's likelihood; those of one kind at once."""
        call: Callable[..., Any] = lambda own, *each: getattr(own, method)(*each)
        if len(self.groups) == 1 < self.outputs:
            return jax.vmap(call)(self.groups[0], *arguments)
        found = []
        for own, group in zip(self.groups, self.places, strict=True):
            if len(group) == 1:
                one = call(own, *(argument[group[0]] for argument in arguments))
                found.append(jax.tree.map(lambda part: part[None], one))
            else:
                some = (argument[np.asarray(group)] for argument in arguments)
                found.append(jax.vmap(call)(own, *some))
        back = np.argsort(np.concatenate(self.places))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts)[back], *found)


def _stacked(likelihoods: list[AbstractLikelihood]) -> AbstractLikelihood:
    """Likelihoods of one form as one, whose parameters are lists; one alone is kept."""
    if len(likelihoods) == 1:
        return likelihoods[0]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *likelihoods)
