"""Kernels of inner products: Linear, Polynomial."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.gp._distances import Gram, Others, Rows, inner
from natgrad.gp._parameters import Numbers, as_logs, check_columns
from natgrad.gp.kernels._base import AbstractKernel


class Linear(AbstractKernel):
    """Σ σ² x z, with one variance, or one for each input.

    >>> rows = jnp.array([[1.0], [2.0]])
    >>> print(gp.kernels.Linear(0.5)(rows, rows))
    [[0.5 1. ]
     [1.  2. ]]
    """

    log_variance: Float[Array, "..."]

    def __init__(self, variance: Numbers = 1.0):
        self.log_variance = as_logs("variance", variance, is_list=True)

    @property
    def variance(self) -> Array:
        """σ², the variance of the slopes."""
        return jnp.exp(self.log_variance)

    def __call__(self, x: Rows, z: Others) -> Gram:
        check_columns("variance", self.log_variance, x)
        return inner(x, z, self.variance)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        variance = jnp.broadcast_to(self.variance, x.shape[1:])
        return (x**2 * variance[None, :]).sum(1)


class Polynomial(AbstractKernel):
    """σ² (Σ x z/ℓ² + c)ᵈ, with offset c > 0 and degree d.

    Raises:
        InputError: If `degree` is below 1.

    >>> rows = jnp.array([[1.0], [2.0]])
    >>> print(gp.kernels.Polynomial(2)(rows, rows).round(2))
    [[ 4.  9.]
     [ 9. 25.]]
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, "..."]
    log_offset: Float[Array, "..."]
    degree: int = eqx.field(static=True)

    def __init__(
        self,
        degree: int,
        lengthscale: Numbers = 1.0,
        variance: Numbers = 1.0,
        offset: Numbers = 1.0,
    ):
        if degree < 1:
            raise InputError(f"degree is {degree}; it should be at least 1")
        self.log_lengthscale = as_logs("lengthscale", lengthscale, is_list=True)
        self.log_variance = as_logs("variance", variance)
        self.log_offset = as_logs("offset", offset)
        self.degree = int(degree)

    @property
    def lengthscale(self) -> Array:
        """ℓ, the unit of the inputs."""
        return jnp.exp(self.log_lengthscale)

    @property
    def variance(self) -> Array:
        """σ², the factor of the whole kernel."""
        return jnp.exp(self.log_variance)

    @property
    def offset(self) -> Array:
        """c, which adds the lower degrees."""
        return jnp.exp(self.log_offset)

    def __call__(self, x: Rows, z: Others) -> Gram:
        check_columns("lengthscale", self.log_lengthscale, x)
        product = inner(x, z, jnp.exp(-2 * self.log_lengthscale))
        return self.variance * (product + self.offset) ** self.degree

    def diag(self, x: Rows) -> Float[Array, " N"]:
        weight = jnp.broadcast_to(jnp.exp(-2 * self.log_lengthscale), x.shape[1:])
        product = (x**2 * weight[None, :]).sum(1)
        return self.variance * (product + self.offset) ** self.degree
