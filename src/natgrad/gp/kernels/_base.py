"""What a kernel is, and the algebra of kernels: Constant, Sum, Product."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.gp._distances import Gram, Others, Rows, squared_distance
from natgrad.gp._parameters import Numbers, as_logs, check_columns


class AbstractKernel(eqx.Module):
    """A positive semidefinite function of two points, on all pairs of two sets.

    Kernels add and multiply, with one another and with positive numbers. What is
    called as k(x, x), with the very same object twice, is exactly symmetric.
    """

    @abc.abstractmethod
    def __call__(self, x: Rows, z: Others) -> Array:
        """k of each row of `x` and each row of `z`."""

    def diag(self, x: Rows) -> Array:
        """k of each row of `x` and itself."""

        def at(row: Array) -> Array:
            one = row[None, :]
            return self(one, one)[..., 0, 0]

        return jax.vmap(at, out_axes=-1)(x)

    def __add__(self, other: object) -> "AbstractKernel":
        return _combined(Sum, self, other)

    def __radd__(self, other: object) -> "AbstractKernel":
        return _combined(Sum, other, self)

    def __mul__(self, other: object) -> "AbstractKernel":
        return _combined(Product, self, other)

    def __rmul__(self, other: object) -> "AbstractKernel":
        return _combined(Product, other, self)


def _combined(
    kind: "type[Sum | Product]", first: object, second: object
) -> AbstractKernel:
    first, second = _as_operand(first), _as_operand(second)
    if first is None or second is None:
        return NotImplemented
    return kind(first, second)


def _as_operand(other: object) -> AbstractKernel | None:
    if isinstance(other, AbstractKernel):
        return other
    number = isinstance(other, float | int | np.generic | np.ndarray | jax.Array)
    return Constant(other) if number and np.ndim(other) == 0 else None


class Constant(AbstractKernel):
    """σ²"""

    log_variance: Float[Array, "..."]

    def __init__(self, variance: Numbers = 1.0):
        self.log_variance = as_logs("variance", variance)

    @property
    def variance(self) -> Array:
        """σ², that of the constant."""
        return jnp.exp(self.log_variance)

    def __call__(self, x: Rows, z: Others) -> Gram:
        return jnp.broadcast_to(self.variance, (len(x), len(z)))

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.variance, x.shape[:1])


class Sum(AbstractKernel):
    """k₁ + k₂"""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.first(x, z) + self.second(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.first.diag(x) + self.second.diag(x)


class Product(AbstractKernel):
    """k₁ k₂"""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.first(x, z) * self.second(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.first.diag(x) * self.second.diag(x)


class AbstractStationary(AbstractKernel):
    """A kernel of the distance between points, r = ‖(x − z)/ℓ‖.

    The lengthscale ℓ is one number, or one for each input. Distances keep their digits
    where no row of z is far from their mean.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, "..."]

    def __init__(self, lengthscale: Numbers = 1.0, variance: Numbers = 1.0):
        self.log_lengthscale = as_logs("lengthscale", lengthscale, is_list=True)
        self.log_variance = as_logs("variance", variance)

    @property
    def lengthscale(self) -> Array:
        """ℓ: how far apart inputs must be to differ."""
        return jnp.exp(self.log_lengthscale)

    @property
    def variance(self) -> Array:
        """σ², that of the function at any point."""
        return jnp.exp(self.log_variance)

    @abc.abstractmethod
    def of_squared_distance(self, squared: Gram) -> Gram:
        """The kernel, from r²."""

    def draw_scales(
        self, key: PRNGKeyArray, num: int, dtype: DTypeLike
    ) -> Float[Array, " num"] | None:
        """Random s, if k is the mean of σ² exp(−s²r²/2) over them; else None.

        `draw_paths` needs it.
        """
        return None

    def __call__(self, x: Rows, z: Others) -> Gram:
        check_columns("lengthscale", self.log_lengthscale, x)
        weight = jnp.exp(-2 * self.log_lengthscale)
        return self.of_squared_distance(squared_distance(x, z, weight))

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.variance, x.shape[:1])
