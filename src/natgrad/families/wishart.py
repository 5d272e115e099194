"""Wishart distributions over positive definite matrices: ScaleDof, RateDof."""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.families._base import AbstractDistribution, family
from natgrad.linalg import AbstractPositiveDefinite
from natgrad.linalg._triangular import (
    Columns,
    Matrix,
    Scalar,
    eye_like,
    inverse_root,
    log_det,
)
from natgrad.positive import AbstractPositive, positive_part


__all__ = ["ScaleDof", "RateDof"]


class Statistics(NamedTuple):
    """The shape of T(X) = (log |X|, X), and so of θ and η."""

    log_det: Float[Array, "*batch"]
    matrix: Float[Array, "*batch P P"]


@family(Statistics)
class AbstractWishart(AbstractDistribution[Statistics]):
    """q(X) ∝ |X|^((ν − P − 1)/2) exp(−tr(V⁻¹X)/2), with E[X] = νV.

    θ = ((ν − P − 1)/2, −V⁻¹/2). Only ν has no closed form in η, and it is one number.
    natgrad stores it as its excess, ν − P + 1, which is positive. F is any factor,
    F Fᵀ = V.
    """

    @abc.abstractmethod
    def scale_matrix(self) -> Matrix:
        """V"""

    @abc.abstractmethod
    def factor(self) -> Matrix:
        """F"""

    @abc.abstractmethod
    def whiten(self, columns: Columns) -> Columns:
        """F⁻¹ x"""

    @abc.abstractmethod
    def log_det(self) -> Scalar:
        """log |V|"""

    @abc.abstractmethod
    def excess_dof(self) -> Scalar:
        """ν − P + 1"""

    def dof(self) -> Scalar:
        """ν"""
        return self.excess_dof() + (self.scale_matrix().shape[-1] - 1)

    def expectation(self) -> Statistics:
        dof, scale = self.dof(), self.scale_matrix()
        return Statistics(self._expected_log_det(), dof[..., None, None] * scale)

    def log_normalizer(self, theta: Statistics) -> Scalar:
        size = theta.matrix.shape[-1]
        dof = 2 * theta.log_det + (size + 1)
        dof = positive_part(dof - (size - 1)) + (size - 1)
        log_rate = log_det(-2 * theta.matrix)
        return _log_gamma(dof, size) + dof / 2 * (size * math.log(2) - log_rate)

    def statistics(self, u: Float[Array, "... P P"]) -> Statistics:
        return Statistics(log_det(u), u)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        factor, dof = self.factor(), self.dof()
        normal_key, gamma_key = jax.random.split(key)
        noise = jax.random.normal(normal_key, shape + factor.shape, factor.dtype)
        halves = _halves(dof, factor.shape[-1])
        halves = jnp.broadcast_to(halves, shape + halves.shape)
        chi = jnp.sqrt(2 * jax.random.gamma(gamma_key, halves, dtype=halves.dtype))
        bartlett = jnp.tril(noise, -1) + chi[..., None] * eye_like(noise)
        root = jnp.broadcast_to(factor, noise.shape) @ bartlett
        return root @ root.mT

    def entropy(self) -> Scalar:
        dof, size = self.dof(), self.scale_matrix().shape[-1]
        log_normalizer = _log_gamma(dof, size) + dof / 2 * (
            size * math.log(2) + self.log_det()
        )
        power = (dof - (size + 1)) / 2
        return log_normalizer - power * self._expected_log_det() + dof * size / 2

    def kl(self, other: "AbstractWishart") -> Scalar:
        here, there = self.dof(), other.dof()
        size = self.scale_matrix().shape[-1]
        trace = (other.whiten(self.factor()) ** 2).sum((-2, -1)) - size
        gap = (here - there) / 2 * digamma(_halves(here, size)).sum(-1)
        gammas = _log_gamma(there, size) - _log_gamma(here, size)
        log_ratio = other.log_det() - self.log_det()
        return gammas + gap + (there * log_ratio + here * trace) / 2

    def _expected_log_det(self) -> Scalar:
        size = self.scale_matrix().shape[-1]
        halves = _halves(self.dof(), size)
        return digamma(halves).sum(-1) + size * math.log(2) + self.log_det()

    def _excess_and_scale_at(self, eta: Statistics) -> tuple[Scalar, Matrix]:
        """The excess at which log |E[X]| − E[log |X|] is what η says, and V.

        It is sought on a log-log scale, where the relation is nearly straight, and as a
        change from the one at hand, which loses no digits there.
        """
        size = eta.matrix.shape[-1]
        here = self.expectation()
        target = (
            _deficit(self.excess_dof(), size)
            + (log_det(eta.matrix) - log_det(here.matrix))
            - (eta.log_det - here.log_det)
        )
        start = lax.stop_gradient(jnp.log(self.excess_dof()))

        def residual(log_excess: Scalar) -> Scalar:
            return jnp.log(_deficit(jnp.exp(log_excess), size)) - jnp.log(target)

        def solve(residual: Callable[[Scalar], Scalar], start: Scalar) -> Scalar:
            def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                step, x, _ = state
                value, slope = jax.jvp(residual, (x,), (jnp.ones_like(x),))
                return step + 1, x - value / slope, jnp.abs(value / slope).max()

            eps = jnp.finfo(start.dtype).eps
            going = lambda state: (state[0] < 100) & (state[2] > 4 * eps)
            first = (jnp.zeros((), int), start, jnp.ones((), start.dtype))
            return lax.while_loop(going, body, first)[1]

        def tangent_solve(linear: Callable[[Scalar], Scalar], right: Scalar) -> Scalar:
            return right / linear(jnp.ones_like(right))

        excess = jnp.exp(lax.custom_root(residual, start, solve, tangent_solve))
        dof = excess + (size - 1)
        return excess, eta.matrix / dof[..., None, None]


class ScaleDof(AbstractWishart):
    """A Wishart distribution in the coordinates V and the excess of ν.

    T(X) is (log |X|, X), in the fields `log_det` and `matrix`.

    >>> from natgrad.families import wishart
    >>> q = wishart.ScaleDof(Sqrt(jnp.eye(2)), Log(jnp.log(3.0)))
    >>> print(f"{q.dof():.1f} {q.entropy():.1f}")
    4.0 6.3
    """

    scale: AbstractPositiveDefinite
    excess: AbstractPositive

    def excess_dof(self) -> Scalar:
        return self.excess.value()

    def scale_matrix(self) -> Matrix:
        return self.scale.matrix()

    def factor(self) -> Matrix:
        return self.scale.factor()

    def whiten(self, columns: Columns) -> Columns:
        return self.scale.whiten(columns)

    def log_det(self) -> Scalar:
        return self.scale.log_det()

    def natural(self) -> Statistics:
        return Statistics(self.excess.value() / 2 - 1, -self.scale.inverse() / 2)

    def at_natural(self, theta: Statistics) -> "ScaleDof":
        scale = self.scale.at_factor(inverse_root(-2 * theta.matrix))
        return ScaleDof(scale, self.excess.at(2 * theta.log_det + 2))

    def at_expectation(self, eta: Statistics) -> "ScaleDof":
        excess, scale = self._excess_and_scale_at(eta)
        return ScaleDof(self.scale.at(scale), self.excess.at(excess))


class RateDof(AbstractWishart):
    """A Wishart distribution in the coordinates V⁻¹ and the excess of ν.

    >>> from natgrad.families import wishart
    >>> q = wishart.RateDof(Full(2 * jnp.eye(2)), Log(jnp.log(3.0)))
    >>> print(q.scale_matrix())
    [[0.5 0. ]
     [0.  0.5]]
    """

    rate: AbstractPositiveDefinite
    excess: AbstractPositive

    def excess_dof(self) -> Scalar:
        return self.excess.value()

    def scale_matrix(self) -> Matrix:
        return self.rate.inverse()

    def factor(self) -> Matrix:
        return self.rate.whiten_transposed(eye_like(self.rate.matrix()))

    def whiten(self, columns: Columns) -> Columns:
        return self.rate.factor().mT @ columns

    def log_det(self) -> Scalar:
        return -self.rate.log_det()

    def natural(self) -> Statistics:
        return Statistics(self.excess.value() / 2 - 1, -self.rate.matrix() / 2)

    def at_natural(self, theta: Statistics) -> "RateDof":
        excess = self.excess.at(2 * theta.log_det + 2)
        return RateDof(self.rate.at(-2 * theta.matrix), excess)

    def at_expectation(self, eta: Statistics) -> "RateDof":
        excess, scale = self._excess_and_scale_at(eta)
        rate = self.rate.at_factor(inverse_root(scale))
        return RateDof(rate, self.excess.at(excess))


def _halves(dof: Scalar, size: int) -> Float[Array, "*batch P"]:
    """(ν + 1 − i)/2, for i from 1 to P."""
    return jnp.stack([(dof - i) / 2 for i in range(size)], -1)


def _log_gamma(dof: Scalar, size: int) -> Scalar:
    """log Γ_P(ν/2)"""
    constant = size * (size - 1) / 4 * math.log(math.pi)
    return gammaln(_halves(dof, size)).sum(-1) + constant


def _deficit(excess: Scalar, size: int) -> Scalar:
    """log |E[X]| − E[log |X|]: P log(ν/2) − Σᵢ ψ((ν + 1 − i)/2)."""
    dof = excess + (size - 1)
    terms = jnp.log(dof / 2)[..., None] - digamma(_halves(dof, size))
    return terms.sum(-1)
