"""What a kernel is, kernels made of kernels, and those of any function."""

import abc
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad.errors import InputError
from natgrad.gp._distances import Gram, Others, Rows, squared_distance
from natgrad.gp._parameters import Numbers, as_floats, as_logs, check_columns, form
from natgrad.linalg._triangular import symmetric


class AbstractKernel(eqx.Module):
    """A positive semidefinite function of two points, on all pairs of two sets.

    Kernels add and multiply, with one another and with positive numbers. If you call
    k(x, x) with the same object twice, the result is exactly symmetric.

    >>> kernel = 2.0 + gp.kernels.Linear() * gp.kernels.RBF(0.5)
    >>> print(kernel.diag(jnp.array([[1.0], [2.0]])))
    [3. 6.]
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


def definer(kernel: AbstractKernel, *methods: str) -> type:
    """The class that writes one of some methods, the last to do so; or `object`.

    What natgrad knows of a kernel does not hold for a class that extends it with a
    formula of its own.
    """
    kinds = type(kernel).__mro__
    return next((kind for kind in kinds if vars(kind).keys() & set(methods)), object)


FORMULA = "__call__", "of_squared_distance"
"""The methods in which a kernel says what it is."""


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
    """k(x, z) = σ²: the function is an unknown constant.

    >>> rows = jnp.array([[0.0], [1.0]])
    >>> print(gp.kernels.Constant(2.0)(rows, rows))
    [[2. 2.]
     [2. 2.]]
    """

    log_variance: Float[Array, "..."]

    def __init__(self, variance: Numbers = 1.0):
        self.log_variance = as_logs("variance", variance)

    @property
    def variance(self) -> Array:
        """σ², the variance of the constant."""
        return jnp.exp(self.log_variance)

    def __call__(self, x: Rows, z: Others) -> Gram:
        return jnp.broadcast_to(self.variance, (len(x), len(z)))

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.variance, x.shape[:1])


class Sum(AbstractKernel):
    """k₁ + k₂, which the operator `+` makes."""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.first(x, z) + self.second(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.first.diag(x) + self.second.diag(x)


class Product(AbstractKernel):
    """k₁ k₂, which the operator `*` makes."""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.first(x, z) * self.second(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.first.diag(x) * self.second.diag(x)


class AbstractStationary(AbstractKernel):
    """A kernel of the distance between points, r = ‖(x − z)/ℓ‖.

    The lengthscale ℓ is one number, or one for each input. Distances keep their digits
    if no row of z is far from their mean.
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
        """σ², the variance of the function at every point."""
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


def require_kernel(kernel: object) -> AbstractKernel:
    """The kernel, or an error that says how to make one."""
    if isinstance(kernel, AbstractKernel):
        return kernel
    raise InputError(
        f"kernel is a {type(kernel).__name__}; it should be one of "
        "natgrad.gp.kernels, where FromFunction makes a kernel of any function of two "
        "rows"
    )


class OnInputs(AbstractKernel):
    """A kernel that sees some columns of the inputs, in the order given.

    >>> kernel = gp.kernels.OnInputs(gp.kernels.RBF(0.5), [1])
    >>> rows = jnp.array([[0.0, 0.0], [9.0, 0.5]])  # column 0 does not count
    >>> print(kernel(rows, rows).round(2))
    [[1.   0.61]
     [0.61 1.  ]]
    """

    kernel: AbstractKernel
    columns: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, kernel: AbstractKernel, columns: Iterable[int]):
        self.kernel = require_kernel(kernel)
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

    natgrad computes kernels of one kind together. They share the distances if each has
    one lengthscale.

    >>> rows = jnp.array([[0.0], [1.0], [2.0]])
    >>> kernel = gp.kernels.Separate([gp.kernels.RBF(0.5), gp.kernels.RBF(2.0)])
    >>> kernel(rows, rows).shape
    (2, 3, 3)
    """

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, kernels: Iterable[AbstractKernel]):
        self.kernels = tuple(map(require_kernel, kernels))

    def __check_init__(self):
        if not self.kernels:
            raise InputError("Separate has no kernels; give one for each function")

    def __call__(self, x: Rows, z: Others) -> Float[Array, "L N M"]:
        return self._each(lambda kernel: kernel(x, z))

    def diag(self, x: Rows) -> Float[Array, "L N"]:
        return self._each(lambda kernel: kernel.diag(x))

    def _each(self, of) -> Array:
        forms = {form(kernel) for kernel in self.kernels}
        if len(forms) > 1 or None in forms:
            return jnp.stack([of(kernel) for kernel in self.kernels])
        return jax.vmap(of)(jax.tree.map(lambda *x: jnp.stack(x), *self.kernels))


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
