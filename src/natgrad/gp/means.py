"""Mean functions of a Gaussian process, before it sees data."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.gp._parameters import Numbers, as_floats


__all__ = ["Zero", "Constant", "Linear", "AbstractMean"]


Rows = Float[Array, "N D"]


class AbstractMean(eqx.Module):
    """A function of each row: one value, or one for each latent function."""

    @abc.abstractmethod
    def __call__(self, x: Rows) -> Float[Array, " N"] | Float[Array, "L N"]:
        """The mean at each row of `x`."""


class Zero(AbstractMean):
    """0, for any number of latent functions.

    >>> print(gp.means.Zero()(jnp.ones((3, 1))))
    [0. 0. 0.]
    """

    def __call__(self, x: Rows) -> Float[Array, " N"]:
        return jnp.zeros(x.shape[0], x.dtype)


class Constant(AbstractMean):
    """One value, or one for each latent function.

    Raises:
        InputError: If `value` has more than one axis.

    >>> print(gp.means.Constant(2.0)(jnp.ones((3, 1))))
    [2. 2. 2.]
    """

    value: Float[Array, "..."]

    def __init__(self, value: Numbers = 0.0):
        self.value = as_floats(value)
        if self.value.ndim > 1:
            raise InputError(
                f"value has shape {list(self.value.shape)}; it should be [], or [L] "
                "for L latent functions"
            )

    def __call__(self, x: Rows) -> Float[Array, " N"] | Float[Array, "L N"]:
        return jnp.broadcast_to(self.value[..., None], (*self.value.shape, len(x)))


class Linear(AbstractMean):
    """⟨slope, x⟩ + intercept, with a slope and an intercept for each latent function.

    The slope has shape [D] or [L, D], and the intercept [] or [L].

    Raises:
        InputError: If the shapes do not fit each other or x.

    >>> print(gp.means.Linear([2.0, 1.0], 0.5)(jnp.ones((3, 2))))
    [3.5 3.5 3.5]
    """

    slope: Float[Array, "..."]
    intercept: Float[Array, "..."]

    def __init__(self, slope: Numbers, intercept: Numbers = 0.0):
        self.slope = as_floats(slope)
        shape = self.slope.shape[:-1]
        if self.slope.ndim not in (1, 2):
            raise InputError(
                f"slope has shape {list(self.slope.shape)}; it should be [D], or [L, D]"
                " for L latent functions"
            )
        intercept = as_floats(intercept)
        if intercept.shape not in ((), shape):
            raise InputError(
                f"intercept has shape {list(intercept.shape)}; with a slope of shape "
                f"{list(self.slope.shape)} it should be {list(shape)}"
            )
        self.intercept = jnp.broadcast_to(intercept, shape)

    def __call__(self, x: Rows) -> Float[Array, " N"] | Float[Array, "L N"]:
        if x.shape[1] != self.slope.shape[-1]:
            raise InputError(
                f"slope has shape {list(self.slope.shape)}, but x has {x.shape[1]} "
                "columns; its last axis should be as long"
            )
        return self.slope @ x.mT + self.intercept[..., None]
