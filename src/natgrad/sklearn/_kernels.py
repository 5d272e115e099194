"""Kernels of the estimators, given by name or as objects in the units of the inputs."""

import math
from typing import Any

import equinox as eqx
import numpy as np
from sklearn.gaussian_process import kernels as sk

from natgrad._registry import KERNELS, MANY
from natgrad.errors import InputError
from natgrad.gp import kernels
from natgrad.gp.inducing import ROWS_EACH
from natgrad.gp.kernels import AbstractKernel, Constant
from natgrad.gp.kernels._base import Product, Sum
from natgrad.sklearn._targets import is_constant, widened


POWERS = {
    kernels.Periodic: ("log_period", -1),
    kernels.Linear: ("log_variance", 2),
    kernels.Polynomial: ("log_lengthscale", -1),
}
"""The parameter that has a unit, and the power of the input's scale it is multiplied
by. A kernel of ‖(x − z)/ℓ‖ alone has its lengthscale."""


ROUGH = 0.1
"""The variance of a rough part at first, if that of the targets is 1."""


def initial_kernels(kernel: Any, scale: np.ndarray) -> list[Any]:
    """Where training starts: as in the paper, far smoother, and far rougher.

    A kernel object is where it starts by itself, converted to inputs in units of
    `scale`. "auto" is a Matérn-5/2.
    """
    if not isinstance(kernel, str):
        own = widened(as_kernel(kernel))
        converted = rescaled(own, scale)
        return [own if converted is None else converted]
    make = getattr(kernels, KERNELS["matern52" if kernel == "auto" else kernel])
    root = np.full(len(scale), math.sqrt(len(scale)))
    return [make(root, 2.0), make(3 * root, 10.0), make(root / 10, 1.0)]


def rough_part(kernel: Any, scale: np.ndarray, rows: int) -> Any:
    """What "auto" adds to its kernel if there are many inducing inputs.

    None for other kernels, and if the rows are too few to learn its lengthscales.
    """
    is_auto = isinstance(kernel, str) and kernel == "auto"
    if not is_auto or rows < max(MANY, ROWS_EACH * len(scale)):
        return None
    return kernels.Matern12(np.full(len(scale), math.sqrt(len(scale))), ROUGH)


def lengthscales(kernel: Any) -> np.ndarray | None:
    """The lengthscales of a kernel of the distance, or of a sum of such kernels.

    In a sum, 1/ℓ² is the mean of those of the parts, by variance: how fast the whole
    function may change. None if the kernel has no lengthscales.
    """
    if not isinstance(kernel, Sum):
        # That of a periodic kernel is a part of the period.
        is_none = isinstance(kernel, kernels.Periodic)
        found = None if is_none else getattr(kernel, "lengthscale", None)
        return None if found is None else np.asarray(found)
    parts = summands(kernel)
    found = [lengthscales(part) for part in parts]
    is_known = all(hasattr(part, "variance") for part in parts)
    if not is_known or any(each is None for each in found):
        return None
    variances = [float(part.variance) for part in parts]
    squares = [np.asarray(each, float) ** -2.0 for each in found]
    weighted = sum(v * square for v, square in zip(variances, squares, strict=True))
    return np.sqrt(sum(variances) / weighted)


def summands(kernel: Any) -> list[Any]:
    """The parts of a sum of kernels, or the kernel itself."""
    if not isinstance(kernel, Sum):
        return [kernel]
    return summands(kernel.first) + summands(kernel.second)


def is_convertible(kernel: Any) -> bool:
    """Whether natgrad knows how the kernel depends on the units of its inputs."""
    return (
        isinstance(kernel, str) or rescaled(as_kernel(kernel), np.ones(1)) is not None
    )


def rescaled(kernel: Any, scale: np.ndarray, is_inverse: bool = False) -> Any:
    """The same kernel for inputs that are divided by `scale`, or multiplied by it.

    None if natgrad cannot convert it. A lengthscale shared by inputs of different
    scales becomes one for each.
    """
    if isinstance(kernel, kernels.Constant):
        return kernel
    if isinstance(kernel, Sum | Product):
        first, second = (
            rescaled(part, scale, is_inverse) for part in (kernel.first, kernel.second)
        )
        return None if first is None or second is None else type(kernel)(first, second)
    if isinstance(kernel, kernels.OnInputs):
        places = [place for place in kernel.columns if place < len(scale)]
        inner = rescaled(kernel.kernel, scale[places], is_inverse)
        return None if inner is None else kernels.OnInputs(inner, kernel.columns)
    if isinstance(kernel, kernels.Separate):
        parts = [rescaled(part, scale, is_inverse) for part in kernel.kernels]
        is_whole = all(part is not None for part in parts)
        return kernels.Separate(parts) if is_whole else None
    base = kernels.AbstractStationary
    is_of_distance = isinstance(kernel, base) and type(kernel).__call__ is base.__call__
    if type(kernel) not in POWERS and not is_of_distance:
        return None
    name, power = POWERS.get(type(kernel), ("log_lengthscale", -1))
    logs = getattr(kernel, name)
    if logs.ndim and logs.shape != scale.shape:
        return kernel  # when called, it raises an error that names both numbers
    # A constant input has no effect, so any scale will do.
    log_scale = np.log(np.where(is_constant(scale), 1.0, scale))
    distinct = np.unique(log_scale[~is_constant(scale)])
    if not logs.ndim and len(distinct) <= 1:
        log_scale = distinct.sum()  # a shared parameter stays shared
    moved = logs + (-power if is_inverse else power) * log_scale
    return eqx.tree_at(lambda tree: getattr(tree, name), kernel, moved)


# Kernels of scikit-learn, as natgrad's


MATERN = {
    0.5: kernels.Matern12,
    1.5: kernels.Matern32,
    2.5: kernels.Matern52,
    np.inf: kernels.RBF,
}
"""scikit-learn's Matérn kernels by their smoothness."""


def as_kernel(kernel: Any) -> AbstractKernel:
    """A kernel object that an estimator takes, as one of natgrad's.

    A constant factor becomes the variance of what it multiplies; all parameters are
    free, whatever their bounds were. scikit-learn's periodic kernel is periodic in the
    distance, and so is translated for a single input only.

    Raises:
        InputError: If it is neither natgrad's nor scikit-learn's, or if scikit-learn's
            has no counterpart.
    """
    match kernel:
        case AbstractKernel():
            return kernel
        case sk.Sum():
            return as_kernel(kernel.k1) + as_kernel(kernel.k2)
        case sk.Product():
            return _product(as_kernel(kernel.k1), as_kernel(kernel.k2))
        case sk.ConstantKernel():
            return Constant(kernel.constant_value)
        case sk.Matern() if kernel.nu in MATERN:
            return MATERN[kernel.nu](_lengthscale(kernel))
        case sk.Matern():
            raise InputError(
                f"Matern has nu = {kernel.nu}; it should be 0.5, 1.5, 2.5 or infinity"
            )
        case sk.RBF():
            return kernels.RBF(_lengthscale(kernel))
        case sk.RationalQuadratic():
            return kernels.RationalQuadratic(_lengthscale(kernel), alpha=kernel.alpha)
        case sk.ExpSineSquared():
            # A lengthscale of shape [1] is refused beside more than one input.
            lengthscale = np.full(1, kernel.length_scale)
            return kernels.Periodic(lengthscale, period=kernel.periodicity)
        case sk.DotProduct():
            linear, offset = kernels.Linear(variance=1.0), kernel.sigma_0**2
            return linear + offset if offset else linear
        case sk.Exponentiation(kernel=sk.DotProduct(sigma_0=root), exponent=degree):
            if degree == int(degree) and degree >= 1:
                return kernels.Polynomial(int(degree), offset=root**2)
        case sk.WhiteKernel():
            raise InputError(
                "WhiteKernel is noise, which belongs to the likelihood; leave it out "
                "of the kernel, and give the likelihood its variance"
            )
    if isinstance(kernel, sk.Kernel):
        raise InputError(
            f"{kernel!r} has no counterpart here; those that have are RBF, Matern, "
            "RationalQuadratic, ExpSineSquared, DotProduct and its powers, "
            "ConstantKernel, Sum and Product"
        )
    raise InputError(
        f"kernel is a {type(kernel).__name__}; it should be a kernel of "
        "natgrad.gp.kernels or of scikit-learn. natgrad.gp.kernels.FromFunction makes "
        "a kernel of any function of two rows"
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
    return first * second
