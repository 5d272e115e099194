"""Kernels of some inputs, or of several latent functions: OnInputs, Separate."""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad.errors import InputError
from natgrad.gp._distances import Gram, Others, Rows
from natgrad.gp.kernels._base import AbstractKernel


def _own(kernel: object) -> AbstractKernel:
    if isinstance(kernel, AbstractKernel):
        return kernel
    raise InputError(
        f"{type(kernel).__name__} is not a kernel of natgrad; "
        "make it one by natgrad.gp.as_kernel first"
    )


class OnInputs(AbstractKernel):
    """A kernel that sees some columns of the inputs, in the order given."""

    kernel: AbstractKernel
    columns: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, kernel: AbstractKernel, columns: Iterable[int]):
        self.kernel = _own(kernel)
        self.columns = tuple(map(int, columns))

    def __check_init__(self):
        distinct = len(set(self.columns)) == len(self.columns) > 0
        if not distinct or min(self.columns) < 0:
            raise InputError(
                f"columns is {self.columns}; it should be distinct numbers from 0"
            )

    def __call__(self, x: Rows, z: Others) -> Gram:
        some = self._some(x)
        return self.kernel(some, some if x is z else self._some(z))

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.kernel.diag(self._some(x))

    def _some(self, x: Array) -> Array:
        if max(self.columns) >= x.shape[1]:
            raise InputError(
                f"columns is {self.columns}, but x has {x.shape[1]} columns, from 0"
            )
        return x[:, np.asarray(self.columns)]


class Separate(AbstractKernel):
    """A kernel for each latent function, [L, N, M] in all and [L, N] on the diagonal.

    Kernels of one kind are computed together, and share the distances where each has
    one lengthscale.
    """

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Iterable[AbstractKernel]):
        self.kernels = tuple(map(_own, kernels))

    def __check_init__(self):
        if not self.kernels:
            raise InputError(
                "Separate has no kernels; give one for each latent function"
            )

    def __call__(self, x: Rows, z: Others) -> Float[Array, "L N M"]:
        return self._each(lambda kernel: kernel(x, z))

    def diag(self, x: Rows) -> Float[Array, "L N"]:
        return self._each(lambda kernel: kernel.diag(x))

    def _each(self, of) -> Array:
        forms = {_form(kernel) for kernel in self.kernels}
        if len(forms) > 1 or None in forms:
            return jnp.stack([of(kernel) for kernel in self.kernels])
        return jax.vmap(of)(jax.tree.map(lambda *x: jnp.stack(x), *self.kernels))


def _form(kernel: AbstractKernel) -> object:
    """What kernels must have in common to be stacked, None where they cannot be."""
    leaves, structure = jax.tree.flatten(kernel)
    if not all(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
