"""Few rows with Gaussian noise: the evidence itself, in place of a bound.

With all rows as inducing inputs, and q the exact posterior, the bound is the evidence.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natgrad.data.batch import Batch
from natgrad.families.gaussian import Moments
from natgrad.gp.kernels import AbstractKernel
from natgrad.gp.likelihoods import Gaussian
from natgrad.gp.means import AbstractMean
from natgrad.gp.projection import Factor, factorized, with_jitter
from natgrad.gp.sparse import SparseGP
from natgrad.linalg import Sqrt
from natgrad.special import LOG_ROOT_TAU
from natgrad.train.history import History, Record
from natgrad.train.loop import Fitted
from natgrad.train.progress import Progress, Silent
from natgrad.train.watch import Clock, Signals
from natgrad.triangular import Matrix, Vector, eye_like, inverse_upper


__all__ = ["Hyperparameters", "evidence", "fit", "solved"]

MOST_ROWS = 1000
"""A step costs their number cubed: of so many, some tenths of a second."""

STEPS = 100
"""Of a climb, at most; seldom are they needed."""

FAR = 20.0
"""How far a hyperparameter, a logarithm mostly, may go from where it began: the noise
of targets that have none would go on for ever."""

WALL = 1e6
"""What a loss that is not finite counts as: nats per datum that none should reach."""

CONVERGED = "the evidence is at its highest"


class Hyperparameters(NamedTuple):
    """All of a model but its inducing inputs and q."""

    kernel: AbstractKernel
    likelihood: Gaussian
    mean: AbstractMean


# The evidence


def evidence(of: Hyperparameters, batch: Batch) -> Float[Array, ""]:
    """log p(y) in nats, of all rows; they count by their weights, as in the bound."""
    x, scale = jnp.asarray(batch.x), _scale(of, batch)
    # Every eigenvalue is at least 1, and a row of weight 0 is one of the identity.
    scaled = jnp.outer(scale, scale) * of.kernel(x, x)
    residual = scale * (batch.y - of.mean(x))
    noise = LOG_ROOT_TAU + of.likelihood.log_variance / 2
    return _log_density(scaled + eye_like(scaled), residual) - _total(batch) * noise


def _scale(of: Hyperparameters, batch: Batch) -> Vector:
    """The root of the precision of each row's noise."""
    count = jnp.ones(len(batch.y)) if batch.weight is None else batch.weight
    return jnp.exp(-of.likelihood.log_variance / 2) * jnp.sqrt(count)


def _total(batch: Batch) -> Any:
    return len(batch.y) if batch.weight is None else batch.weight.sum()


@jax.custom_vjp
def _log_density(covariance: Matrix, residual: Vector) -> Float[Array, ""]:
    """−½ rᵀ C⁻¹ r − ½ log |C|, whose slope at C is ½ (C⁻¹ r rᵀ C⁻¹ − C⁻¹)."""
    return _log_density_forward(covariance, residual)[0]


def _log_density_forward(covariance: Matrix, residual: Vector) -> Any:
    factor = factorized(covariance)
    root = factor.inverse @ residual
    value = jnp.log(jnp.diagonal(factor.inverse)).sum() - root @ root / 2
    return value, (factor, root)


def _log_density_backward(kept: tuple[Factor, Vector], slope: Array) -> Any:
    factor, root = kept
    solution = root @ factor.inverse
    at = jnp.outer(solution, solution) - factor.inverse.T @ factor.inverse
    return slope * with_jitter(at, factor) / 2, -slope * solution


_log_density.defvjp(_log_density_forward, _log_density_backward)


@jax.jit
def solved(of: Hyperparameters, inducing: Any, batch: Batch) -> SparseGP:
    """A model with q where the bound is highest: where a natural step of size 1 ends.

    In whitened coordinates its precision is I + A W Aᵀ / σ², with W the weights.
    """
    prior = SparseGP(of.kernel, of.likelihood, inducing, mean=of.mean)
    rows = prior.project(jnp.asarray(batch.x))
    scale = _scale(of, batch)
    features = rows.features * scale[None]
    precision = features @ features.T
    root = inverse_upper(precision + eye_like(precision)).T
    mean = root @ (root.T @ (features @ (scale * (batch.y - rows.mean))))
    q = Moments(mean, Sqrt(root))
    return SparseGP(of.kernel, of.likelihood, inducing, q, of.mean)


# The climb


def fit(
    beginnings: Sequence[Hyperparameters],
    inducing: Any,
    batch: Batch,
    *,
    steps: int = STEPS,
    minutes: int | float | None = None,
    progress: bool = True,
    log: Any = None,
) -> Fitted:
    """Climbs the evidence by L-BFGS from several hyperparameters; the highest is kept.

    The options are those of `natgrad.train.run`, and it can be ended as that can.
    """
    seconds = minutes and 60 * minutes
    bar = Progress(steps * len(beginnings), seconds) if progress else Silent()
    with Signals() as signals, bar as shown:
        climb = _Climb(batch, steps, seconds or math.inf, signals, shown)
        tops = [climb.up(first) for first in beginnings]
        params, records, reason = max(tops, key=lambda top: top.records[-1].objective)
        shown.show(climb.shown_steps, records[-1])
        shown.end(reason)
    if signals.is_terminated:
        raise SystemExit(143)
    history = History(log)
    history.begin(-1)
    for record in records:
        history.add(record)
    history.reason = reason
    return Fitted(solved(params, jnp.asarray(inducing), batch), history)


class _Top(NamedTuple):
    params: Hyperparameters
    records: list[Record]
    reason: str


class _Climb:
    """Runs of SciPy's L-BFGS, which share a clock and a bar."""

    def __init__(
        self, batch: Batch, steps: int, seconds: float, signals: Signals, shown: Any
    ):
        self.batch, self.steps, self.seconds = batch, steps, seconds
        self.signals, self.shown = signals, shown
        self.clock, self.shown_steps = Clock(0.0), 0

    def up(self, first: Hyperparameters) -> _Top:
        """Where the climb from these ends."""
        flat, unflatten = ravel_pytree(first)
        at, records = np.asarray(flat), []

        def loss_and_slope(at: np.ndarray) -> tuple[float, np.ndarray]:
            loss, slope = _loss_and_slope(unflatten(jnp.asarray(at)), self.batch)
            slope = np.asarray(ravel_pytree(slope)[0])
            is_good = np.isfinite(loss) and np.isfinite(slope).all()
            return (float(loss), slope) if is_good else (WALL, np.zeros_like(slope))

        def look(intermediate_result: Any) -> None:
            records.append(self._record(len(records), intermediate_result.fun))
            if self._why_not() is not None:
                raise StopIteration

        records.append(self._record(0, loss_and_slope(at)[0]))
        if self._why_not() is None:
            found = scipy.optimize.minimize(
                loss_and_slope,
                at,
                jac=True,
                method="L-BFGS-B",
                bounds=np.stack([at - FAR, at + FAR], axis=1),
                callback=look,
                options={"maxiter": self.steps},
            )
            at = found.x
        is_short = len(records) > self.steps
        reason = self._why_not() or ("all steps taken" if is_short else CONVERGED)
        return _Top(unflatten(jnp.asarray(at)), records, reason)

    def _record(self, step: int, loss: Any) -> Record:
        self.shown_steps += 1
        seconds = round(self.clock.seconds(), 3)
        record = Record(step, seconds, -float(loss))
        self.shown.show(self.shown_steps, record)
        return record

    def _why_not(self) -> str | None:
        """Why to go no further, if there is a reason."""
        if self.signals.reason is not None:
            return self.signals.reason
        return "the time is over" if self.clock.seconds() > self.seconds else None


@jax.jit
def _loss_and_slope(params: Hyperparameters, batch: Batch) -> Any:
    """Minus the evidence per datum, and its gradient."""
    loss = lambda params: -evidence(params, batch) / _total(batch)
    return jax.value_and_grad(loss)(params)
