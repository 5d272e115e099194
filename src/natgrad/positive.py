"""Positive numbers in coordinates: Log, Softplus."""

import abc
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


__all__ = ["Log", "Softplus", "AbstractPositive"]


Numbers = Float[Array, "..."]

if TYPE_CHECKING:  # the runtime checker of the tests cannot read this bound
    S = TypeVar("S", bound="AbstractPositive")
else:
    S = TypeVar("S")


def positive_part(value: Numbers) -> Numbers:
    """The numbers, NaN where they are not positive."""
    return jnp.where(value > 0, value, jnp.nan)


class AbstractPositive(eqx.Module):
    """Positive numbers. The class says what is stored."""

    @abc.abstractmethod
    def value(self) -> Numbers:
        """The numbers themselves."""

    @abc.abstractmethod
    def at(self: S, value: Numbers) -> S:
        """Other numbers, in the coordinates of `self`."""

    def slope(self, grad: Any) -> Numbers:
        """∂L/∂value, from the gradient in these coordinates."""
        return jax.vjp(self.at, self.value())[1](grad)[0]

    def tangent(self: S, change: Numbers) -> S:
        """How the coordinates move when the numbers move by `change`."""
        return jax.jvp(self.at, (self.value(),), (change,))[1]


class Plain(AbstractPositive):
    """Positive numbers stored as they are."""

    plain: Numbers

    def value(self) -> Numbers:
        return self.plain

    def at(self, value: Numbers) -> "Plain":
        return Plain(value)


class Log(AbstractPositive):
    """Positive numbers stored as their logarithms.

    >>> print(Log(jnp.array([0.0, 1.0])).value().round(2))
    [1.   2.72]
    """

    log: Numbers

    def value(self) -> Numbers:
        return jnp.exp(self.log)

    def at(self, value: Numbers) -> "Log":
        return Log(jnp.log(value))


class Softplus(AbstractPositive):
    """Positive numbers log(1 + eˣ), stored as x.

    A large number is stored nearly as it is, a small one nearly as its logarithm.

    >>> softplus = natgrad.positive.Softplus(jnp.array([-5.0, 0.0, 5.0]))
    >>> print(softplus.value().round(3))
    [0.007 0.693 5.007]
    """

    raw: Numbers

    def value(self) -> Numbers:
        return jax.nn.softplus(self.raw)

    def at(self, value: Numbers) -> "Softplus":
        return Softplus(value + jnp.log(-jnp.expm1(-value)))
