"""Kernels of distances: Matern12, Matern32, Matern52, RBF and others."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.gp._distances import (
    Gram,
    Others,
    Rows,
    matern12,
    matern32,
    matern52,
    squared_distance,
)
from natgrad.gp._parameters import Numbers, as_logs, check_columns
from natgrad.gp.kernels._base import AbstractStationary


Scales = Float[Array, " num"]


class Matern12(AbstractStationary):
    """σ² exp(−r), for rough functions.

    It has a cusp at r = 0, where natgrad takes the derivative as zero.

    >>> rows = jnp.array([[0.0], [1.0]])
    >>> print(gp.kernels.Matern12(1.0)(rows, rows).round(2))
    [[1.   0.37]
     [0.37 1.  ]]
    """

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0):
        super().__init__(lengthscale, variance)

    def of_squared_distance(self, squared: Gram) -> Gram:
        return self.variance * matern12(squared)

    def draw_scales(self, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
        return _student_t(0.5, key, num, dtype)


class Matern32(AbstractStationary):
    """σ² (1 + √3 r) exp(−√3 r), for functions with one derivative.

    >>> rows = jnp.array([[0.0], [1.0]])
    >>> print(gp.kernels.Matern32(1.0)(rows, rows).round(2))
    [[1.   0.48]
     [0.48 1.  ]]
    """

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0):
        super().__init__(lengthscale, variance)

    def of_squared_distance(self, squared: Gram) -> Gram:
        return self.variance * matern32(3 * squared)

    def draw_scales(self, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
        return _student_t(1.5, key, num, dtype)


class Matern52(AbstractStationary):
    """σ² (1 + √5 r + 5r²/3) exp(−√5 r), with r = ‖(x − z)/ℓ‖: natgrad's default.

    >>> rows = jnp.array([[0.0, 0.0], [1.0, 4.0]])
    >>> print(gp.kernels.Matern52([1.0, 8.0])(rows, rows).round(2))
    [[1.   0.46]
     [0.46 1.  ]]
    """

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0):
        super().__init__(lengthscale, variance)

    def of_squared_distance(self, squared: Gram) -> Gram:
        return self.variance * matern52(5 * squared)

    def draw_scales(self, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
        return _student_t(2.5, key, num, dtype)


def _student_t(nu: float, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
    """The spectral density of a Matérn kernel of smoothness ν is Student's t."""
    return jnp.sqrt(nu / jax.random.gamma(key, nu, (num,), dtype))


class RBF(AbstractStationary):
    """σ² exp(−r²/2), for very smooth functions.

    >>> rows = jnp.array([[0.0], [1.0]])
    >>> print(gp.kernels.RBF(1.0, variance=2.0)(rows, rows).round(2))
    [[2.   1.21]
     [1.21 2.  ]]
    """

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0):
        super().__init__(lengthscale, variance)

    def of_squared_distance(self, squared: Gram) -> Gram:
        return self.variance * jnp.exp(-squared / 2)

    def draw_scales(self, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
        return jnp.ones(num, dtype)


class RationalQuadratic(AbstractStationary):
    """σ² (1 + r²/2α)^(−α), a mixture of RBF kernels of many lengthscales.

    >>> rows = jnp.array([[0.0], [1.0]])
    >>> print(gp.kernels.RationalQuadratic(1.0, alpha=2.0)(rows, rows).round(2))
    [[1.   0.64]
     [0.64 1.  ]]
    """

    log_alpha: Float[Array, "..."]

    def __init__(
        self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0, alpha: Numbers = 1.0
    ):
        super().__init__(lengthscale, variance)
        self.log_alpha = as_logs("alpha", alpha)

    @property
    def alpha(self) -> Array:
        """α: the smaller, the more lengthscales are mixed."""
        return jnp.exp(self.log_alpha)

    def of_squared_distance(self, squared: Gram) -> Gram:
        log_base = jnp.log1p(squared / (2 * self.alpha))
        return self.variance * jnp.exp(-self.alpha * log_base)

    def draw_scales(self, key: PRNGKeyArray, num: int, dtype: DTypeLike) -> Scales:
        alpha = self.alpha.astype(dtype)
        return jnp.sqrt(jax.random.gamma(key, alpha, (num,), dtype) / alpha)


class Periodic(AbstractStationary):
    """σ² exp(−2 Σ sin²(π(x − z)/p)/ℓ²), with one period p, or one for each input.

    >>> rows = jnp.array([[0.0], [0.5], [1.0]])
    >>> print(gp.kernels.Periodic(1.0, period=1.0)(rows, rows)[0].round(2))
    [1.   0.14 1.  ]
    """

    log_period: Float[Array, "..."]

    def __init__(
        self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0, period: Numbers = 1.0
    ):
        super().__init__(lengthscale, variance)
        self.log_period = as_logs("period", period, is_list=True)

    @property
    def period(self) -> Array:
        """p, after which the function repeats."""
        return jnp.exp(self.log_period)

    def of_squared_distance(self, squared: Gram) -> Gram:
        return self.variance * jnp.exp(-squared / 2)

    def __call__(self, x: Rows, z: Others) -> Gram:
        check_columns("lengthscale", self.log_lengthscale, x)
        check_columns("period", self.log_period, x)
        weight = jnp.exp(-2 * self.log_lengthscale)
        if weight.ndim:
            weight = jnp.concatenate([weight, weight])
        centre = lax.stop_gradient(z.mean(0, keepdims=True))
        around = self._on_circles(x - centre)
        others = around if x is z else self._on_circles(z - centre)
        return self.of_squared_distance(squared_distance(around, others, weight))

    def _on_circles(self, x: Array) -> Array:
        # Chords are of length 2 |sin(π(x − z)/p)|, so that this is an RBF of chords.
        period = jnp.broadcast_to(self.period, x.shape[1:])
        angle = 2 * np.pi * x / period[None, :]
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], 1)
