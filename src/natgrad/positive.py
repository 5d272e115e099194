"""Positive numbers in coordinates: Plain, Log, Softplus."""

import abc
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


__all__ = ["AbstractPositive", "Plain", "Log", "Softplus"]


Numbers = Float[Array, "..."]

if TYPE_CHECKING:  # the runtime checker of the tests cannot read this bound
    S = TypeVar("S", bound="AbstractPositive")
else:
    S = TypeVar("S")


def positive_part(value: Numbers) -> Numbers:
    """The numbers, NaN where they are not positive."""
    return jnp.where(value > 0, value, jnp.nan)


class AbstractPositive(eqx.Module):
    """Positive numbers. The class says what is stored of them."""

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
    """The numbers as they are."""

    plain: Numbers

    def value(self) -> Numbers:
        return self.plain

    def at(self, value: Numbers) -> "Plain":
        return Plain(value)


class Log(AbstractPositive):
    """Their logarithms."""

    log: Numbers

    def value(self) -> Numbers:
        return jnp.exp(self.log)

    def at(self, value: Numbers) -> "Log":
        return Log(jnp.log(value))


class Softplus(AbstractPositive):
    """x with value log(1 + eˣ): a number where large, its logarithm where small."""

    raw: Numbers

    def value(self) -> Numbers:
        return jax.nn.softplus(self.raw)

    def at(self, value: Numbers) -> "Softplus":
        return Softplus(value + jnp.log(-jnp.expm1(-value)))
