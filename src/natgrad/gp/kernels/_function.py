"""Any function of two rows, another library's or one's own, as a kernel."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from natgrad.gp._distances import Gram, Others, Rows
from natgrad.gp._parameters import as_floats
from natgrad.gp.kernels._base import AbstractKernel
from natgrad.linalg._triangular import symmetric


class FromFunction(AbstractKernel):
    """A kernel from a function k(a, b) of two rows that returns a number.

    It can be a plain function, an `eqx.Module` or a kernel of another library, such as
    `kernel.evaluate` of tinygp. If it is a tree, such as a module or a
    `jax.tree_util.Partial`, its floating-point numbers are parameters. Training can
    move them to any real number, so store the logarithm of what must stay positive.

    >>> kernel = gp.kernels.FromFunction(lambda a, b: jnp.minimum(a, b).sum())
    >>> rows = jnp.array([[1.0], [2.0]])
    >>> print(kernel(rows, rows))
    [[1. 1.]
     [1. 2.]]
    """

    file_instead = "a natgrad.gp.kernels.AbstractKernel"
    function: Any  # from two rows to a number

    def __init__(self, function: Callable[[Array, Array], Any]):
        # A plain function is no tree of arrays, and a Partial of it is.
        is_leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(function))
        tree = jax.tree_util.Partial(function) if is_leaf else function
        is_number = eqx.is_inexact_array_like
        made = lambda leaf: as_floats(leaf) if is_number(leaf) else leaf
        self.function = jax.tree.map(made, tree)

    def __call__(self, x: Rows, z: Others) -> Gram:
        of_row = lambda a: jax.vmap(lambda b: self.function(a, b))(z)
        gram = jax.vmap(of_row)(x)
        return symmetric(gram) if x is z else gram

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return jax.vmap(self.function)(x, x)
