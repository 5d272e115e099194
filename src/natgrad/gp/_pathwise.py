"""Functions drawn from the posterior, by pathwise conditioning.

A draw from the prior, a sum of random Fourier features, is updated to agree with a draw
of q at the inducing inputs (Wilson et al. 2020):

    f(x) = φ(x)ᵀw + k(x, Z) K⁻¹ (u − φ(Z)ᵀw),    w ~ N(0, I),  u ~ q.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad._padding import chunks
from natgrad._runtime.programs import filter_jit
from natgrad.errors import InputError
from natgrad.gp import _prediction
from natgrad.gp._prediction import Predictor, chunk_rows
from natgrad.gp._sparse import SparseGP
from natgrad.gp.kernels import (
    AbstractKernel,
    AbstractStationary,
    Constant,
    Linear,
    OnInputs,
    Periodic,
    Separate,
)
from natgrad.gp.kernels._base import FORMULA, Product, Sum, definer
from natgrad.linalg._triangular import matvec


Rows = Float[Array, "N D"]


class Circles(NamedTuple):
    """Frequencies in the cos and sin of each input's angle on its circle."""

    period: Float[Array, " D"]
    frequency: Float[Array, "2 D F"]

    def phase(self, x: Rows) -> Float[Array, "N F"]:
        angle = 2 * math.pi * x / self.period[None, :]
        return jnp.cos(angle) @ self.frequency[0] + jnp.sin(angle) @ self.frequency[1]

    def on(self, columns: np.ndarray, width: int) -> "Circles":
        wide = jnp.zeros((2, width, self.frequency.shape[2]), self.frequency.dtype)
        period = jnp.ones(width, self.period.dtype)
        return Circles(
            period.at[columns].set(self.period), wide.at[:, columns].set(self.frequency)
        )


class Waves(eqx.Module):
    """A stationary kernel as σ² E cos(p(x) − p(z)), by the mean of F random phases.

    A constant is a single wave of frequency zero, and so exact; the phases of a product
    are the sums of its factors'.
    """

    variance: Float[Array, ""]
    frequency: Float[Array, "D F"]
    circles: tuple[Circles, ...] = ()

    def __call__(self, x: Rows, centre: Float[Array, " D"]) -> Float[Array, "N P"]:
        # Phases keep their digits near the centre; where it is does not matter.
        x = x - centre[None, :]
        phase = sum((c.phase(x) for c in self.circles), x @ self.frequency)
        pair = jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], 1)
        return jnp.sqrt(self.variance / phase.shape[1]) * pair

    def times(self, other: "Waves") -> "Waves":
        return Waves(
            self.variance * other.variance,
            self.frequency + other.frequency,
            self.circles + other.circles,
        )

    def on(self, columns: np.ndarray, width: int) -> "Waves":
        wide = jnp.zeros((width, self.frequency.shape[1]), self.frequency.dtype)
        frequency = wide.at[columns].set(self.frequency)
        circles = tuple(circle.on(columns, width) for circle in self.circles)
        return Waves(self.variance, frequency, circles)


class Lines(eqx.Module):
    """A linear kernel, by σ x itself."""

    root: Float[Array, " D"]

    def __call__(self, x: Rows, centre: Float[Array, " D"]) -> Float[Array, "N D"]:
        return x * self.root[None, :]

    def on(self, columns: np.ndarray, width: int) -> "Lines":
        return Lines(jnp.zeros(width, self.root.dtype).at[columns].set(self.root))


Term = Waves | Lines


def terms(
    kernel: AbstractKernel, key: PRNGKeyArray, width: int, num: int, dtype: Any
) -> list[Term]:
    """Features of a kernel of `width` inputs, `num` frequencies for each of its terms.

    A stationary kernel that mixes RBF kernels has a normal frequency times a random
    scale, which `AbstractStationary.draw_scales` gives.
    """
    first_key, second_key = jax.random.split(key)
    again = lambda kernel, key: terms(kernel, key, width, num, dtype)
    formula = definer(kernel, *FORMULA)
    is_built_in = formula.__module__.startswith("natgrad.")
    if not is_built_in and not issubclass(definer(kernel, "draw_scales"), formula):
        raise _refused(type(kernel).__name__)
    match kernel:
        case Sum():
            return again(kernel.first, first_key) + again(kernel.second, second_key)
        case Product():
            firsts = again(kernel.first, first_key)
            seconds = again(kernel.second, second_key)
            return [_product(kernel, a, b) for a in firsts for b in seconds]
        case OnInputs():
            inner = terms(kernel.kernel, key, len(kernel.columns), num, dtype)
            return [term.on(np.asarray(kernel.columns), width) for term in inner]
        case Constant():
            return [Waves(_variance(kernel, dtype), jnp.zeros((width, 1), dtype))]
        case Linear():
            return [
                Lines(jnp.broadcast_to(jnp.sqrt(_variance(kernel, dtype)), (width,)))
            ]
        case Periodic():
            period = jnp.broadcast_to(kernel.period.astype(dtype), (width,))
            frequency = jax.random.normal(key, (2, width, num), dtype)
            frequency /= _lengthscale(kernel, width, dtype)[None, :, None]
            still = jnp.zeros((width, 1), dtype)
            return [
                Waves(_variance(kernel, dtype), still, (Circles(period, frequency),))
            ]
        case AbstractStationary():
            scale = kernel.draw_scales(second_key, num, dtype)
            if scale is not None:
                frequency = jax.random.normal(first_key, (width, num), dtype)
                frequency *= scale[None, :]
                frequency /= _lengthscale(kernel, width, dtype)[:, None]
                return [Waves(_variance(kernel, dtype), frequency)]
    raise _refused(type(kernel).__name__)


def _variance(kernel: AbstractStationary | Constant | Linear, dtype: Any) -> Array:
    return kernel.variance.astype(dtype)


def _lengthscale(kernel: AbstractStationary, width: int, dtype: Any) -> Array:
    return jnp.broadcast_to(kernel.lengthscale.astype(dtype), (width,))


def _product(kernel: Product, first: Term, second: Term) -> Term:
    if isinstance(first, Lines):
        first, second = second, first
    if isinstance(first, Waves) and isinstance(second, Waves):
        return first.times(second)
    if isinstance(kernel.first, Constant) or isinstance(kernel.second, Constant):
        assert isinstance(first, Waves) and isinstance(second, Lines)
        return Lines(jnp.sqrt(first.variance) * second.root)
    raise _refused("a product of Linear with a kernel that is not Constant")


def _refused(name: str) -> InputError:
    return InputError(
        f"the kernel is or contains {name}, which has no random Fourier features; use "
        "predictor.sample_latent, which draws at given rows from any kernel"
    )


class Features(eqx.Module):
    """φ of one kernel, with φ(x)ᵀφ(z) ≈ k(x, z)."""

    terms: tuple[Term, ...]
    centre: Float[Array, " D"]

    def __call__(self, x: Rows) -> Float[Array, "N P"]:
        return jnp.concatenate([term(x, self.centre) for term in self.terms], 1)


class Paths(eqx.Module):
    """Functions drawn from the posterior: `draw_paths` makes them, and says how."""

    model: SparseGP
    features: tuple[Features, ...]  # one, or one for each separate kernel
    weights: tuple[Float[Array, "num ..."], ...]
    update: Float[Array, "num *L M"]

    def __call__(self, x: object) -> np.ndarray:
        x = np.asarray(x, self.update.dtype)
        width = self.model.inducing.shape[-1]
        if x.ndim != 2 or x.shape[1] != width:
            raise InputError(
                f"x has shape {list(x.shape)}; it should be rows of {width} inputs"
            )
        if not len(x):
            return np.zeros((*self.update.shape[:-1], 0), x.dtype)
        per_row = max(w.size // len(self.update) for w in self.weights)
        per_row = max(per_row, self.update.size)
        parts = [
            np.asarray(_at(self, jnp.asarray(chunk)))[..., :size]
            for (chunk,), size in chunks((x,), chunk_rows(per_row))
        ]
        return np.concatenate(parts, -1)

    def at(self, x: Rows) -> Float[Array, "num *L N"]:
        """The value of each function at each row of x."""
        model = self.model
        cross = model.kernel(model.inducing, x)
        if cross.ndim == 2:
            known = self.update @ cross
        else:
            known = jnp.einsum("klm,lmn->kln", self.update, cross)
        f = _waves(self.features, self.weights, x, cross.ndim > 2) + known
        return f + jnp.broadcast_to(model.mean(x), f.shape)


@filter_jit
def _at(paths: Paths, x: Array) -> Array:
    return paths.at(x)


def _waves(
    features: tuple[Features, ...], weights: tuple[Array, ...], x: Rows, separate: bool
) -> Array:
    """The draws from the prior, [num, ..., N]."""
    each = [w @ phi(x).mT for phi, w in zip(features, weights, strict=True)]
    return jnp.stack(each, 1) if separate else each[0]


def draw_paths(
    source: Predictor | SparseGP, key: PRNGKeyArray, num: int, features: int = 1024
) -> Paths:
    """Draws `num` functions from the posterior of a model.

    Call the result with any rows x to get the values of all functions there, a NumPy
    array [num, ..., N]. Repeated calls evaluate the same functions. Use its method `at`
    inside `jax.jit` and `jax.grad`.

    `features` is the number of random Fourier frequencies, each with a cos and a sin.
    They approximate prior covariances with an error of about σ²/√(2 · features), less
    near the inducing inputs. Linear and constant kernels are exact. More paths do not
    reduce the error, because all share the frequencies.

    Raises:
        InputError: If `num` or `features` is below 1, or the kernel has no random
            Fourier features; use `Predictor.sample_latent` then.

    >>> paths = gp.draw_paths(gp.update(model, (x, y)), jax.random.key(0), num=3)
    >>> paths(x).shape
    (3, 50)
    >>> np.allclose(paths(x)[:, :9], paths(x[:9]))  # the same functions
    True
    """
    for name, value in {"num": num, "features": features}.items():
        if value < 1:
            raise InputError(f"{name} is {value}; it should be at least 1")
    predictor = (
        _prediction.predictor(source) if isinstance(source, SparseGP) else source
    )
    return _draw(predictor, key, num, features)


@filter_jit
def _draw(predictor: Predictor, key: Array, num: int, count: int) -> Paths:
    model, inverse = predictor.model, predictor.whitening
    z, kernel = model.inducing, model.kernel
    separate = isinstance(kernel, Separate)
    key_u, key_jitter, *keys = jax.random.split(key, 4)
    u = model.posterior.sample(key_u, (num,))

    def made(kernel: AbstractKernel, key: Array) -> Features:
        parts = terms(kernel, key, z.shape[1], count, u.dtype)
        return Features(tuple(parts), z.mean(0))

    own = kernel.kernels if separate else (kernel,)
    pairs = zip(own, jax.random.split(keys[0], len(own)), strict=True)
    features = tuple(made(kernel, key) for kernel, key in pairs)
    shape = (num,) if separate else u.shape[:-1]
    weights = tuple(
        jax.random.normal(key, (*shape, phi(z[:1]).shape[1]), u.dtype)
        for phi, key in zip(features, jax.random.split(keys[1], len(own)), strict=True)
    )
    # The matrix that was factorized is that of values with this much noise.
    scale = predictor.jitter * kernel.diag(z).mean(-1)
    noise = jax.random.normal(key_jitter, u.shape, u.dtype)
    noise *= jnp.broadcast_to(jnp.sqrt(scale)[..., None], u.shape[1:])[None]
    prior = _waves(features, weights, z, separate) + noise
    # K⁻¹(u − prior) = L⁻ᵀ(v − L⁻¹ prior)
    if model.is_whitened:
        update = matvec(inverse.mT, u - matvec(inverse, prior))
    else:
        update = matvec(inverse.mT, matvec(inverse, u - prior))
    return Paths(model, features, weights, update)
