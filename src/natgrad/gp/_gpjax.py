"""Variational families of GPJax, with q as a distribution of ours."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.families.gaussian import Moments
from natgrad.gp._interop import Form, taken_apart
from natgrad.gp._parameters import as_floats
from natgrad.linalg import Sqrt


class GPJaxModel(eqx.Module):
    """A variational family of GPJax whose q natgrad can train.

    A `VariationalGaussian`, whitened or not, has one posterior q. A
    `HeteroscedasticVariationalFamily` has two. The other parameters are as GPJax stores
    them. Write your loss with `family`, GPJax's object at the parameters of now, and
    call `to_gpjax` after training.

    Raises:
        InputError: If the family stores no mean and root of a covariance.

    >>> import gpjax
    >>> prior = gpjax.gps.Prior(
    ...     mean_function=gpjax.mean_functions.Zero(), kernel=gpjax.kernels.RBF()
    ... )
    >>> model = gp.GPJaxModel(
    ...     gpjax.variational_families.WhitenedVariationalGaussian(
    ...         model=prior * gpjax.likelihoods.Gaussian(), inducing_inputs=x[::10]
    ...     )
    ... )
    >>> rows = gpjax.Dataset(X=jnp.asarray(x), y=jnp.asarray(y)[:, None])
    >>> minus_elbo = lambda model: -gpjax.objectives.elbo(model.family, rows)
    >>> tx = natgrad.mirror_descent(1.0)
    >>> updates, _ = tx.update(jax.grad(minus_elbo)(model), tx.init(model), model)
    >>> bool(minus_elbo(optax.apply_updates(model, updates)) < minus_elbo(model))
    True
    """

    posteriors: tuple[Moments, ...]
    parameters: tuple[Float[Array, "..."], ...]
    form: Form = eqx.field(static=True)

    def __init__(self, family: Any):
        gaussians = _gaussians(family)
        if not gaussians:
            raise InputError(
                f"{type(family).__name__} stores no variational_mean and "
                "variational_root_covariance; it should be GPJax's VariationalGaussian "
                "or one built on it"
            )
        self.posteriors = tuple(map(_posterior, gaussians))
        emptied = eqx.tree_at(_places, family, [None] * 2 * len(gaussians))
        self.parameters, self.form = taken_apart(emptied)

    @property
    def family(self) -> Any:
        """The family of GPJax, with m and the root of S as plain arrays."""
        return self._filled(lambda mean: mean, lambda root: root)

    def to_gpjax(self) -> Any:
        """The family of GPJax, with q in GPJax's own parameters again."""
        from gpjax.parameters import LowerTriangular, Real

        return self._filled(Real, LowerTriangular)

    def _filled(self, of_mean: Any, of_root: Any) -> Any:
        values = []
        for q in self.posteriors:
            values += [of_mean(q.mean[:, None]), of_root(_upright(q.factor()))]
        is_none = lambda node: node is None
        family = self.form.filled(self.parameters)
        return eqx.tree_at(_places, family, values, is_leaf=is_none)


def _is_gaussian(node: Any) -> bool:
    return hasattr(node, "variational_root_covariance")


def _gaussians(family: Any) -> list[Any]:
    """The Gaussians in a family, from left to right."""
    return list(filter(_is_gaussian, jax.tree.leaves(family, is_leaf=_is_gaussian)))


def _places(family: Any) -> list[Any]:
    """Where the family stores m and the root of S, for each of its Gaussians."""
    fields = ("variational_mean", "variational_root_covariance")
    return [getattr(each, name) for each in _gaussians(family) for name in fields]


def _posterior(family: Any) -> Moments:
    stored = family.variational_mean, family.variational_root_covariance
    mean, root = (getattr(x, "unwrap", lambda x=x: x)() for x in stored)
    return Moments(as_floats(mean)[:, 0], Sqrt(as_floats(root)))


def _upright(root: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The same covariance with a positive diagonal, which GPJax asks of its root."""
    return root * jnp.where(jnp.diagonal(root) < 0, -1, 1).astype(root.dtype)[None]
