"""Kernels of scikit-learn, as natgrad's."""

from typing import Any

import equinox as eqx
import numpy as np
from sklearn.gaussian_process import kernels as sk

from natgrad.errors import InputError
from natgrad.gp import kernels
from natgrad.gp.kernels import AbstractKernel, Constant


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
