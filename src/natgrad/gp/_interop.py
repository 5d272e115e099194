"""Kernels of tinygp, GPJax and scikit-learn, as kernels of ours."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from natgrad._warnings import warn
from natgrad.errors import InputError, InputWarning
from natgrad.gp._distances import Gram, Others, Rows
from natgrad.gp._parameters import as_floats
from natgrad.gp.kernels import (
    RBF,
    AbstractKernel,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
)
from natgrad.gp.kernels._base import is_built_in


MATERN: dict[float, type[Matern12 | Matern32 | Matern52 | RBF]] = {
    0.5: Matern12,
    1.5: Matern32,
    2.5: Matern52,
    np.inf: RBF,
}
"""scikit-learn's Matérn kernels by their smoothness."""

FIXED = ("order",)
"""Numbers of tinygp's kernels that are no parameters: a power stays what it is."""


def as_kernel(kernel: Any) -> AbstractKernel:
    """A kernel of another library, or any function of (x, z), as one of natgrad's.

    The library is tinygp, GPJax or scikit-learn. `SparseGP` and `initialize` call this
    function for you.

    Raises:
        InputError: If `kernel` is none of these, or has no counterpart.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> kernel = gp.as_kernel(RBF(0.5))
    >>> type(kernel).__name__, kernel.lengthscale.item()
    ('RBF', 0.5)
    """
    if isinstance(kernel, AbstractKernel):
        return kernel
    home = _home(kernel)
    if home in _FROM:
        return _FROM[home](kernel)
    if callable(kernel):
        return FromCallable(*taken_apart(kernel))
    raise InputError(
        f"kernel is {kernel!r}; it should be a kernel of natgrad, tinygp, GPJax or "
        "scikit-learn, or a function of (x, z)"
    )


def _home(kernel: object) -> str | None:
    """The library whose base class a kernel has, without importing any."""
    for base in type(kernel).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _FROM:
            return package
    return None


@dataclasses.dataclass(frozen=True, eq=True)
class Form:
    """All of a foreign object that is no parameter."""

    structure: Any
    others: tuple[Any, ...]  # None where a parameter goes
    is_log: tuple[bool, ...]

    def __hash__(self) -> int:
        # Structures may hold what has no hash, such as the slices of GPJax.
        return hash((len(self.others), self.is_log))

    def filled(self, parameters: tuple[Array, ...]) -> Any:
        """The object itself, with these parameters."""
        values = iter(
            jnp.exp(value) if is_log else value
            for value, is_log in zip(parameters, self.is_log, strict=True)
        )
        leaves = [next(values) if other is None else other for other in self.others]
        return jax.tree.unflatten(self.structure, leaves)


class AbstractForeign(AbstractKernel):
    """A kernel of another library, its parameters taken out as free real arrays."""

    parameters: tuple[Float[Array, "..."], ...]
    form: Form = eqx.field(static=True)

    @property
    def kernel(self) -> Any:
        """The kernel itself, with the parameters as they are now."""
        return self.form.filled(self.parameters)


class FromCallable(AbstractForeign):
    """Any function of (x, z); the float arrays of a callable tree are parameters."""

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.kernel(x, z)


class FromTinygp(AbstractForeign):
    """A kernel of tinygp."""

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.kernel(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return self.kernel(x)


class FromGPJax(AbstractForeign):
    """A kernel of GPJax."""

    def __call__(self, x: Rows, z: Others) -> Gram:
        return self.kernel.cross_covariance(x, z)

    def diag(self, x: Rows) -> Float[Array, " N"]:
        return jax.vmap(self.kernel)(x, x)


def from_tinygp(kernel: Any, real: Sequence[str] = ()) -> FromTinygp:
    """A kernel of tinygp, with its numbers as parameters.

    tinygp leaves it to its user to keep parameters positive. Here every array that is
    positive everywhere is stored as its logarithm, and so stays positive; `real` names
    fields that may change sign, such as the scale of a linear transform.
    """

    def path_name(path: tuple) -> str:
        return next((k.name for k in reversed(path) if hasattr(k, "name")), "")

    plain = []

    def converted(path: tuple, leaf: Any) -> Any:
        if path_name(path) in FIXED:
            return leaf if np.ndim(leaf) else np.asarray(leaf).item()
        if isinstance(leaf, float | int) and not isinstance(leaf, bool):
            plain.append(path_name(path))
            return as_floats(leaf)
        return leaf

    def is_log(path: tuple, leaf: Any) -> bool:
        return path_name(path) not in real and bool((np.asarray(leaf) > 0).all())

    kernel = jax.tree_util.tree_map_with_path(converted, kernel)
    if plain:
        warn(
            f"{type(kernel).__name__} of tinygp has plain numbers ({', '.join(plain)}),"
            " which have no gradients; they were made arrays, and are trained",
            InputWarning,
        )
    return FromTinygp(*taken_apart(kernel, is_log))


def from_gpjax(kernel: Any) -> FromGPJax:
    """A kernel of GPJax, whose parameters hold their own way to stay positive."""
    return FromGPJax(*taken_apart(kernel))


def taken_apart(
    kernel: Any, is_log: Callable[[tuple, Any], bool] = lambda path, leaf: False
) -> tuple[tuple[Array, ...], Form]:
    """The float arrays of a tree, or their logarithms, and the rest."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(kernel)
    free = [(path, leaf) for path, leaf in pairs if eqx.is_inexact_array(leaf)]
    others = tuple(None if eqx.is_inexact_array(x) else x for _, x in pairs)
    logs = tuple(is_log(path, leaf) for path, leaf in free)
    arrays = (as_floats(leaf) for _, leaf in free)
    values = (jnp.log(a) if log else a for a, log in zip(arrays, logs, strict=True))
    return tuple(values), Form(structure, others, logs)


def from_sklearn(kernel: Any) -> AbstractKernel:
    """The same kernel as one of scikit-learn's.

    A constant factor becomes the variance of what it multiplies; all parameters are
    free, whatever their bounds were. scikit-learn's periodic kernel is periodic in the
    distance, and so is translated for a single input only.
    """
    from sklearn.gaussian_process import kernels as sk

    match kernel:
        case sk.Sum():
            return Sum(from_sklearn(kernel.k1), from_sklearn(kernel.k2))
        case sk.Product():
            return _product(from_sklearn(kernel.k1), from_sklearn(kernel.k2))
        case sk.ConstantKernel():
            return Constant(kernel.constant_value)
        case sk.Matern() if kernel.nu in MATERN:
            return MATERN[kernel.nu](_lengthscale(kernel))
        case sk.Matern():
            raise InputError(
                f"Matern has nu = {kernel.nu}; it should be 0.5, 1.5, 2.5 or infinity"
            )
        case sk.RBF():
            return RBF(_lengthscale(kernel))
        case sk.RationalQuadratic():
            return RationalQuadratic(_lengthscale(kernel), alpha=kernel.alpha)
        case sk.ExpSineSquared():
            # A lengthscale of shape [1] is refused beside more than one input.
            lengthscale = np.full(1, kernel.length_scale)
            return Periodic(lengthscale, period=kernel.periodicity)
        case sk.DotProduct():
            linear, offset = Linear(variance=1.0), kernel.sigma_0**2
            return linear + offset if offset else linear
        case sk.Exponentiation(kernel=sk.DotProduct(sigma_0=root), exponent=degree):
            if degree == int(degree) and degree >= 1:
                return Polynomial(int(degree), offset=root**2)
        case sk.WhiteKernel():
            raise InputError(
                "WhiteKernel is noise, which belongs to the likelihood; leave it out "
                "of the kernel, and give the likelihood its variance"
            )
    raise InputError(
        f"{kernel!r} has no counterpart here; those that have are RBF, Matern, "
        "RationalQuadratic, ExpSineSquared, DotProduct and its powers, "
        "ConstantKernel, Sum and Product"
    )


def _lengthscale(kernel: Any) -> np.ndarray:
    return np.asarray(kernel.length_scale, dtype=float)


def _product(first: AbstractKernel, second: AbstractKernel) -> AbstractKernel:
    """Their product, where a constant is taken into a variance: one number, not two."""
    if isinstance(second, Constant):
        first, second = second, first
    log_variance = getattr(second, "log_variance", None)
    if isinstance(first, Constant) and log_variance is not None:
        together = first.log_variance + log_variance
        return eqx.tree_at(lambda k: k.log_variance, second, together)
    return Product(first, second)


def to_sklearn(kernel: AbstractKernel) -> Any:
    """The same kernel as one of scikit-learn's, at the parameters of now."""
    from sklearn.gaussian_process import kernels as sk

    if isinstance(kernel, Sum):
        return to_sklearn(kernel.first) + to_sklearn(kernel.second)
    if isinstance(kernel, Product):
        return to_sklearn(kernel.first) * to_sklearn(kernel.second)
    if isinstance(kernel, Constant):
        return sk.ConstantKernel(float(kernel.variance))
    one = lambda name: _one(kernel, name)
    match kernel:
        case _ if not is_built_in(kernel):
            raise _unknown(kernel)
        case RBF():
            shape = sk.RBF(_one_or_more(kernel.lengthscale))
        case Matern12() | Matern32() | Matern52():
            nu = next(nu for nu, kind in MATERN.items() if isinstance(kernel, kind))
            shape = sk.Matern(_one_or_more(kernel.lengthscale), nu=nu)
        case RationalQuadratic():
            shape = sk.RationalQuadratic(one("lengthscale"), one("alpha"))
        case Periodic():
            shape = sk.ExpSineSquared(one("lengthscale"), one("period"))
        case Linear():
            shape = sk.DotProduct(0.0, sigma_0_bounds="fixed")
        case Polynomial():
            scale, offset = one("lengthscale"), one("offset")
            base = sk.DotProduct(np.sqrt(offset) * scale)
            shape = sk.Exponentiation(base, kernel.degree)
            factor = scale ** (-2 * kernel.degree)
            return sk.ConstantKernel(one("variance") * factor) * shape
        case _:
            raise _unknown(kernel)
    return sk.ConstantKernel(one("variance")) * shape


def _unknown(kernel: AbstractKernel) -> InputError:
    return InputError(f"{type(kernel).__name__} has no counterpart in scikit-learn")


def _one(kernel: Any, name: str) -> float:
    value = np.asarray(getattr(kernel, name))
    if value.size != 1:
        raise InputError(
            f"{name} of {type(kernel).__name__} has shape {list(value.shape)}; for "
            "scikit-learn it should be one number"
        )
    return value.item()


def _one_or_more(value: Array) -> Any:
    return np.asarray(value) if value.ndim else float(value)


_FROM: dict[str, Callable[[Any], AbstractKernel]] = {
    "tinygp": from_tinygp,
    "gpjax": from_gpjax,
    "sklearn": from_sklearn,
}
