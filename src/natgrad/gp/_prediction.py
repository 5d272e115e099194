"""Prediction from a sparse Gaussian process, in chunks of bounded memory."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_context
from jaxtyping import Array, Float, PRNGKeyArray

from natgrad._padding import chunks
from natgrad._runtime.programs import LONG_RUN, SHORT_RUN, filter_jit
from natgrad.data._batches import Columns, as_array
from natgrad.errors import FitError, InputError, NumericalWarning, warn
from natgrad.gp._projection import factorized, jittered, least_jitter
from natgrad.gp._quantiles import Rows, cdf, quantiles, rows_of
from natgrad.gp._sparse import Latent, SparseGP
from natgrad.gp.likelihoods._outputs import LinearCoregionalization
from natgrad.gp.likelihoods._rows import (
    by_row,
    check as check_targets,
    check_columns,
    shifted,
    with_columns,
)
from natgrad.linalg._triangular import transposed


ENTRIES = 2**24
"""How many numbers of one array a chunk may need: rows times inducing points."""


class Predictor(eqx.Module):
    """A model ready for prediction: what all rows share is computed once.

    The mean at x is k(x, Z) `weights`, and its variance k(x, x) − |`whitening` k|² +
    |`spreading` k|², with k = k(Z, x). Methods take and return NumPy arrays of any
    number of rows; use `latent_at` inside a jitted function. `predictor` makes one.
    `columns` are what comes with the targets of the rows, such as {"exposure": e}.
    With several outputs, predictions have an axis for them after that of the rows.

    >>> predictor = gp.predictor(gp.update(model, (x, y)))
    >>> mean, variance = predictor.predict([[0.25], [0.5]])
    >>> print(mean.round(1))
    [0.9 0.1]
    >>> print(predictor.quantiles([[0.25]], [0.05, 0.95]).round(1))
    [[0.8 1.1]]
    """

    model: SparseGP
    weights: Float[Array, "*L M"]
    whitening: Float[Array, "*S M M"]
    spreading: Float[Array, "*L M M"]
    jitter: Float[Array, ""]

    def latent_at(self, x: Float[Array, "B D"]) -> tuple[Latent, Latent]:
        """The mean and the variance of each latent function at each row of x."""
        model = self.model
        cross = model.kernel(model.inducing, x)
        mean = (self.weights[..., None, :] @ cross)[..., 0, :]
        mean += jnp.broadcast_to(model.mean(x), mean.shape)
        known = ((self.whitening @ cross) ** 2).sum(-2)
        var = ((self.spreading @ cross) ** 2).sum(-2)
        var += jnp.broadcast_to(model.kernel.diag(x) - known, var.shape)
        return mean, jnp.maximum(var, 0)

    def latent(self, x: object) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of each latent function at each row of x."""
        return self._rows(_latent, x)

    def predict(
        self, x: Any, columns: Columns | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The mean and the variance of the target at each row of x."""
        return self._rows(_moments, x, columns)

    def probabilities(self, x: Any, columns: Columns | None = None) -> np.ndarray:
        """The probability of each class at each row of x, [N, K]."""
        return self._rows(_probabilities, x, columns)

    def quantiles(
        self, x: Any, levels: Any, columns: Columns | None = None
    ) -> np.ndarray:
        """The quantiles of the target at the given levels, [N, levels].

        They are [N, P, levels] with P outputs.
        """
        levels = checked_levels(levels)
        each = [quantiles(rows, levels) for rows in self._targets(x, columns)]
        return each[0] if self.model.likelihood.outputs is None else np.stack(each, 1)

    def log_density(self, x: Any, y: Any, columns: Columns | None = None) -> np.ndarray:
        """The log predictive density of each target.

        With several outputs it is that of each output alone, [N, P], and NaN where the
        target is NaN.
        """
        y = as_array(y)
        check_targets(self.model.likelihood, y, columns or {})
        return self._rows(_log_density, x, columns, y)

    def cdf(self, x: Any, y: Any, columns: Columns | None = None) -> np.ndarray:
        """The probability that the target is at most y, at each row."""
        _, _, y = self._columns(x, columns, y)
        each = self._targets(x, columns)
        if self.model.likelihood.outputs is None:
            return cdf(each[0], y)
        # Of an output that was not observed it is not known.
        found = [cdf(*pair) for pair in zip(each, y.T, strict=True)]
        return np.where(np.isnan(y), np.nan, np.stack(found, 1))

    def sample_latent(self, key: PRNGKeyArray, x: Any, num: int = 1) -> np.ndarray:
        """Draws of the latent functions at all rows of x jointly, [num, ..., N].

        They are exact up to jitter on the covariance of the rows, N times machine
        epsilon. The cost grows with the cube of the number of rows.
        """
        return np.asarray(_joint_draws(self, key, self._inputs(x), num))

    def sample(
        self, key: PRNGKeyArray, x: Any, num: int = 1, columns: Columns | None = None
    ) -> np.ndarray:
        """Draws of the targets at all rows of x jointly, [num, N] or [num, N, P]."""
        key_f, key_y = jax.random.split(key)
        x, columns = self._columns(x, columns)
        f = _joint_draws(self, key_f, x, num)
        return np.asarray(_targets(self, key_y, f, columns))

    def _targets(self, x: Any, columns: Any) -> list[Rows]:
        """The target of each row, one for each output."""
        (x, columns), likelihood = self._columns(x, columns), self.model.likelihood
        mean, var = self.latent(x)
        if not isinstance(likelihood, LinearCoregionalization):
            return [rows_of(likelihood, shifted(mean, columns), var, columns)]
        found = jax.vmap(likelihood.marginals)(jnp.asarray(mean), jnp.asarray(var))
        mean, var = map(np.asarray, found)
        each = zip(likelihood.likelihoods, mean.T, var.T, strict=True)
        return [rows_of(*output) for output in each]

    def _rows(self, function: Callable[..., Any], x: Any, *others: Any) -> Any:
        """Applies a function of some rows to all of them, chunk by chunk."""
        columns, parts = self._columns(x, *others), []
        for chunk, size in chunks(columns, self._chunk_rows()):
            part = function(self, *jax.device_put(chunk))
            parts.append(jax.tree.map(lambda a, size=size: np.asarray(a)[:size], part))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *parts)

    def _columns(self, x: Any, columns: Any = None, *others: Any) -> tuple[Any, ...]:
        """Inputs, the columns that come with targets, and targets, as arrays."""
        x, likelihood = self._inputs(x), self.model.likelihood
        columns = {name: as_array(each) for name, each in (columns or {}).items()}
        check_columns(likelihood, columns, len(x))
        targets = (*map(as_array, others),)
        expected = (len(x), *(() if (size := likelihood.outputs) is None else (size,)))
        for y in targets:
            if y.shape != expected:
                raise InputError(
                    f"y has shape {list(y.shape)}; it should be one target for "
                    f"each of the {len(x)} rows of x, {list(expected)}"
                )
        return (x, columns, *targets)

    def _inputs(self, x: object) -> np.ndarray:
        x = np.asarray(x, self.weights.dtype)
        width = self.model.inducing.shape[-1]
        if x.ndim != 2 or x.shape[1] != width or not len(x):
            raise InputError(
                f"x has shape {list(x.shape)}; it should be some rows of {width} inputs"
            )
        return x

    def _chunk_rows(self) -> int:
        points = self.model.likelihood.points * (self.model.likelihood.latents or 1)
        per_row = max(self.weights.size, points) + self.model.inducing.shape[-1]
        return chunk_rows(per_row)


def checked_levels(levels: object) -> np.ndarray:
    """The levels of quantiles, checked."""
    levels = np.atleast_1d(np.asarray(levels, float))
    if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
        raise InputError(f"levels is {levels}; it should be numbers between 0 and 1")
    return levels


def predictor(model: SparseGP) -> Predictor:
    """Prepares a model for prediction.

    Inside `jax.jit` or `jax.vmap` it cannot raise: a singular matrix gives NaN, and
    `jitter` shows how much natgrad added to the diagonal.

    Raises:
        FitError: If the posterior or the kernel matrix of the inducing inputs is not
            positive definite and finite.

    >>> predictor = gp.predictor(gp.update(model, (x, y)))
    >>> mean, variance = predictor.predict([[0.25]])
    >>> print(mean.round(1))
    [0.9]
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(model)):
        return _conditioned(model)
    with eval_context():  # the model may be a constant of a traced function
        ready = _condition(model)
    jitter = float(ready.jitter)
    shared = (ready.weights, ready.spreading)
    if not all(np.isfinite(np.asarray(array)).all() for array in shared):
        raise FitError(
            "the posterior, or the kernel matrix of the inducing inputs with "
            f"{jitter:.0e} of its diagonal added, is not positive definite and finite; "
            "use fewer inducing inputs or ones further apart, a shorter lengthscale, "
            "targets of a size near 1, or float64"
        )
    if jitter > 2 * max(1e-6, least_jitter(ready.whitening)):
        warn(
            f"the kernel matrix of the inducing inputs is near singular: {jitter:.0e} "
            "of its diagonal was added; use fewer inducing inputs, or choose them by "
            "natgrad.gp.inducing.greedy",
            NumericalWarning,
        )
    return ready


def _conditioned(model: SparseGP) -> Predictor:
    q = model.posterior
    inverse, jitter = factorized(model.kernel(model.inducing, model.inducing))
    right = inverse if model.is_whitened else transposed(inverse) @ inverse
    weights = (q.location()[..., None, :] @ right)[..., 0, :]
    return Predictor(model, weights, inverse, q.spread(right), jitter)


# jax refuses compiler options inside another program.
_jit_for_one_call = functools.partial(filter_jit, compiler_options=SHORT_RUN)
_jit_for_many_calls = functools.partial(filter_jit, compiler_options=LONG_RUN)
_condition = _jit_for_one_call(_conditioned)


def _by_row(predictor: Predictor, x: Array) -> tuple[Array, Array]:
    mean, var = predictor.latent_at(x)
    return jnp.moveaxis(mean, -1, 0), jnp.moveaxis(var, -1, 0)


@_jit_for_many_calls
def _latent(predictor: Predictor, x: Array, columns: Columns) -> tuple[Array, Array]:
    return _by_row(predictor, x)


def _of_method(name: str) -> Callable[..., Any]:
    """A method of the likelihood of one row, as a function of rows of inputs."""

    @_jit_for_many_calls
    def of_rows(predictor: Predictor, x: Array, columns: Columns, *y: Array) -> Any:
        likelihood = predictor.model.likelihood
        each = by_row(likelihood, getattr(type(likelihood), name))
        return each(*_by_row(predictor, x), columns, *y)

    return of_rows


_moments, _probabilities = _of_method("moments"), _of_method("probabilities")
_log_density = _of_method("log_predictive")


@_jit_for_one_call
def _joint_draws(predictor: Predictor, key: Array, x: Array, num: int) -> Array:
    """Pathwise: the part of f that u explains, plus the rest."""
    model, q = predictor.model, predictor.model.posterior
    x = jnp.asarray(x)
    features = predictor.whitening @ model.kernel(model.inducing, x)
    prior = model.kernel(x, x)
    # The difference is rounded as its terms are.
    scale = jnp.trace(prior, axis1=-2, axis2=-1) / len(x)
    left = prior - features.mT @ features
    factor = factorized(left, scale)
    root = jittered(left, factor.jitter, scale) @ factor.inverse.mT
    key_u, key_rest = jax.random.split(key)
    u = q.sample(key_u, (num,))
    if not model.is_whitened:
        u = (predictor.whitening @ u[..., None])[..., 0]
    noise = jax.random.normal(key_rest, (*u.shape[:-1], len(x)), x.dtype)
    known = (u[..., None, :] @ features)[..., 0, :]
    f = known + (root @ noise[..., None])[..., 0]
    return f + jnp.broadcast_to(model.mean(x), f.shape)


@_jit_for_one_call
def _targets(predictor: Predictor, key: Array, f: Array, columns: Any) -> Array:
    num, rows = f.shape[0], f.shape[-1]
    keys = jax.random.split(key, (num, rows))

    def one(key: Array, f: Array, columns: Columns) -> Array:
        own, f = with_columns(predictor.model.likelihood, f, columns)
        return own.sample(key, f)

    each = jax.vmap(one, in_axes=(0, -1, 0))
    return jax.vmap(each, in_axes=(0, 0, None))(keys, f, columns)


def chunk_rows(entries: int) -> int:
    """The rows of a chunk if each row needs so many numbers, a power of two."""
    return max(64, 2 ** int(np.log2(ENTRIES / entries)))
