"""The base of all estimators: from a table to a trained model and back to its units."""

import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from natgrad import gp
from natgrad._printable import printable_errors
from natgrad._registry import KERNELS
from natgrad._runtime import compilation_cache
from natgrad._runtime.threads import few_threads, largest
from natgrad.data._batch import Batch
from natgrad.data._frames import require_numbers
from natgrad.data._prepare import Stream
from natgrad.errors import InputError, InputWarning
from natgrad.gp._files import from_bytes, to_bytes
from natgrad.gp._online import update
from natgrad.sklearn import (
    _export as export,
    _files as files,
    _summary as summary,
    _training as training,
)
from natgrad.sklearn._doubts import reason_to_doubt
from natgrad.sklearn._kernels import is_convertible
from natgrad.sklearn._targets import (
    Targets,
    centre_and_deviation,
    counted,
    input_scales,
    is_constant,
    weighted,
)
from natgrad.train._history import History
from natgrad.train._loop import CONVERGED


FEW = 256
"""With at most this many rows, repeated rows are merged and weighted."""

STILL = 0.01
"""A converged run gains at most this in its last fifth, in nats per row."""

FAR = 1e100
"""Scaled inputs are clipped here: the square of 1e200 is infinite."""


def in_double(method: Callable[..., Any]) -> Callable[..., Any]:
    """Computes in float64 without changing your settings of JAX."""

    @functools.wraps(method)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        model = getattr(arguments[0], "model_", None) if arguments else None
        with (
            compilation_cache.enabled(),
            few_threads(largest(model)),
            jax.enable_x64(True),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        ):
            return method(*arguments, **keywords)

    return wrapped


class BaseGP(BaseEstimator):
    """Scales the inputs; a subclass defines its targets."""

    def __init__(
        self,
        likelihood: Any = "auto",
        *,
        kernel: Any = "matern52",
        n_inducing: Any = "auto",
        max_iter: Any = "auto",
        minutes: Any = None,
        batch_size: Any = "auto",
        random_state: Any = 0,
        verbose: Any = 1,
    ):
        # `fit` checks them, as scikit-learn demands.
        self.likelihood = likelihood
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.max_iter = max_iter
        self.minutes = minutes
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        """The likelihood, and the units in which it sees encoded targets."""
        raise NotImplementedError

    def _candidates(self, y: np.ndarray, weight: np.ndarray) -> list[Targets]:
        """The likelihoods to compare, all in the same units."""
        return [self._targets(y, weight)]

    def _learn_classes(self, y: Any, classes: Any) -> None:
        """Stores the classes; only classifiers have them."""

    def _numbers(self, y: Any) -> np.ndarray:
        """Targets as numbers, encoded as in `fit`."""
        raise NotImplementedError

    # Learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the model to rows of inputs and their targets.

        `sample_weight` says how much each row counts, by default 1.

        Raises:
            ValueError: If a parameter, or a value in the data, cannot be used.
        """
        return self._fit(X, y, sample_weight)

    @in_double
    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        classes: Any = None,
        **options: Any,
    ) -> Any:
        """As `fit`, of rows in memory or on disk; `options` are those of `gp.fit`."""
        if isinstance(X, Stream):
            training.train_stream(self, X, classes, **options)
            return self
        began = time.monotonic()
        self._check_parameters()
        require_numbers(X)
        X, y = validate_data(self, X, y, **self._rules())
        X, y, weight = weighted(X, y, sample_weight)
        self._learn_classes(y, classes)
        y = self._numbers(y)
        total = float(weight.sum())
        if len(y) <= FEW:
            X, y, weight = counted(X, y, weight)
        centre, deviation = centre_and_deviation(X, weight)
        candidates, rows, seed = self._scale(centre, deviation, X, y, weight)
        y = rows.y
        fitted = training.trained(self, rows, candidates, seed, **options)
        self._keep(fitted, total, time.monotonic() - began)
        doubt = reason_to_doubt(self, fitted.history[-1].objective, rows, weight)
        if doubt is not None:
            warnings.warn(doubt, InputWarning, stacklevel=4)
        return self

    def _scale(
        self,
        centre: np.ndarray,
        deviation: np.ndarray,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
    ) -> tuple[list[Targets], Batch, int]:
        """Sets the units; the candidates, the rows in these units, and a seed."""
        scale = input_scales(x, deviation)
        if not is_convertible(self.kernel):  # it sees the inputs as they are
            is_fixed = is_constant(scale)
            centre, scale = np.where(is_fixed, (centre, scale), [[0.0], [1.0]])
        self.x_mean_, self.x_scale_ = centre, scale
        candidates = self._candidates(y, weight)
        self.y_mean_, self.y_scale_ = candidates[0].centre, candidates[0].scale
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return candidates, Batch(self._scaled(x), self._standard(y), weight), seed

    @in_double
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Updates the model with new rows, without those seen before.

        The first call is a `fit`. Later calls keep its hyperparameters, inducing inputs
        and scaling, and update only the posterior: to that of all rows, exactly for
        Gaussian noise and nearly for other noise. So the first rows should be like the
        rest. If they are not, as in a table sorted by an input, predictions are worse
        than those of a `fit`, and natgrad warns if the new rows are far from the
        inducing inputs.
        """
        if not hasattr(self, "model_"):
            return self._fit(X, y, sample_weight)
        require_numbers(X)
        X, y = validate_data(self, X, y, reset=False, **self._rules())
        X, y, weight = weighted(X, y, sample_weight)
        if len(y):
            y = self._standard(self._numbers(y))
            self._set_model(update(self.model_, (self._scaled(X), y, weight)))
            self.n_rows_seen_ += float(weight.sum())
        return self

    def _set_model(self, model: gp.SparseGP) -> None:
        """Stores a model and its predictor."""
        self.model_, self._predictor = model, gp.predictor(model)
        self.n_inducing_ = len(model.inducing)

    def _keep(self, fitted: Any, total: float, seconds: float) -> None:
        """Stores the results of a run, in the user's units."""
        self._set_model(fitted.params)
        self.history_ = history = fitted.history
        self.n_rows_seen_ = total
        self.n_iter_ = int(history[-1].step)
        self.elbo_ = history[-1].objective - math.log(self.y_scale_)
        self.fit_seconds_ = seconds
        self.message_ = history.reason
        gain = 0.0 if history.reason == CONVERGED else _late_gain(history)
        self.converged_ = not gain > STILL
        if not self.converged_:
            rise = f"rose by {gain:.2g} nats per row" if gain < math.inf else "may rise"
            self.message_ += f"; the ELBO still {rise}"
            more = "max_iter" if self.minutes is None else "max_iter or more minutes"
            warnings.warn(
                f"the ELBO still {rise} at the end of {self.n_iter_} steps; use a "
                f"larger {more}",
                ConvergenceWarning,
                stacklevel=5,
            )
        elif history.reason != CONVERGED:
            self.message_ += "; the ELBO no longer rises"

    def _check_parameters(self) -> None:
        if isinstance(self.kernel, str) and self.kernel not in KERNELS:
            raise InputError(
                f"kernel is {self.kernel!r}; it should be one of "
                f"{', '.join(map(repr, KERNELS))}, or a kernel itself"
            )
        for name in ("n_inducing", "max_iter", "batch_size"):
            value = getattr(self, name)
            is_whole = isinstance(value, int | np.integer) and value > 0
            is_auto = isinstance(value, str) and value == "auto"
            if not is_whole and not is_auto:
                raise InputError(
                    f"{name} is {value!r}; it should be a whole number above 0 or "
                    "'auto'"
                )
        is_level = isinstance(self.verbose, int | np.integer | np.bool_)
        if not is_level or self.verbose < 0:
            raise InputError(
                f"verbose is {self.verbose!r}; it should be a whole number, 0 or "
                "more, or a bool"
            )
        if self.minutes is not None and not self.minutes > 0:
            raise InputError(f"minutes is {self.minutes!r}; it should be above 0")

    def _rules(self) -> dict[str, Any]:
        """How scikit-learn validates the table."""
        return {"dtype": np.float64, "y_numeric": True}

    # Prediction

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip((x - self.x_mean_) / self.x_scale_, -FAR, FAR)

    def _standard(self, y: np.ndarray) -> np.ndarray:
        return (y - self.y_mean_) / self.y_scale_

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        require_numbers(X)
        with printable_errors():  # they list names of columns
            table: Any = validate_data(self, X, dtype=np.float64, reset=False)
        return self._scaled(table)

    @in_double
    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """The log predictive density of each target, in its own units."""
        x = self._inputs(X)
        y = self._standard(self._numbers(y))
        return self._predictor.log_density(x, y) - math.log(self.y_scale_)

    # What was learned

    @in_double
    def save(self, path: Any, metadata: dict[str, Any] | None = None) -> None:
        """Saves a fitted estimator to one file, which `natgrad.sklearn.load` loads.

        `metadata` is a dictionary of JSON values to store with it.
        """
        check_is_fitted(self)
        files.save(self, path, metadata)

    @in_double
    def to_numpy(self, path: Any, quantiles: Any = ()) -> None:
        """Writes predictions as a Python file that imports only NumPy.

        Its `predict` takes rows of the table and returns a dict with "mean", "std" and
        "quantiles", or "probabilities", "class_index" and "label", as in `predict` and
        `predict_proba`. `quantiles` are levels between 0 and 1.
        """
        export.to_numpy(self, path, quantiles)

    @in_double
    def to_onnx(self, path: Any, quantiles: Any = ()) -> None:
        """Writes predictions as an ONNX model, with the outputs of `to_numpy`.

        The input "x" is rows of the table in float64. Needs the package `onnx`.
        """
        export.to_onnx(self, path, quantiles)

    @in_double
    def to_stablehlo(self, path: Any, quantiles: Any = ()) -> None:
        """Writes predictions as a function for `jax.export.deserialize`.

        Its outputs are those of `to_numpy` without "label", as StableHLO has no text:
        `class_index` is an index into `classes_`. Needs the package `flatbuffers`.
        """
        export.to_stablehlo(self, path, quantiles)

    @property
    @in_double
    def lengthscales_(self) -> np.ndarray:
        """The lengthscale of each input, in its own units.

        It is infinite for a constant input, which has no effect.
        """
        check_is_fitted(self)
        lengthscale = getattr(self.model_.kernel, "lengthscale", None)
        # That of a periodic kernel is a part of the period.
        if lengthscale is None or isinstance(self.model_.kernel, gp.kernels.Periodic):
            raise AttributeError(
                f"{type(self.model_.kernel).__name__} has no lengthscales"
            )
        scale = np.where(is_constant(self.x_scale_), np.inf, self.x_scale_)
        return np.broadcast_to(np.asarray(lengthscale), scale.shape) * scale

    @property
    def inducing_points_(self) -> np.ndarray:
        """The inducing inputs, in the units of the table."""
        check_is_fitted(self)
        scale = np.where(is_constant(self.x_scale_), 0.0, self.x_scale_)
        return np.asarray(self.model_.inducing) * scale + self.x_mean_

    @in_double
    def __str__(self) -> str:
        return summary.text(self) if hasattr(self, "model_") else repr(self)

    @in_double
    def _html_repr(self) -> str:
        table = summary.html(self) if hasattr(self, "model_") else ""
        return table + super()._html_repr()

    # Pickles hold the model as a natgrad file, and no compiled code.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @in_double
    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "model_" in state:
            del state["_predictor"]
            state["model_"] = to_bytes(state["model_"])
            state["history_"] = state["history_"].to_dict()
        return state

    @in_double
    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            history = History.from_dict(state["history_"])
            state = {**state, "history_": history}
            self._set_model(from_bytes(*state.pop("model_")))
        super().__setstate__(state)


def _late_gain(history: History) -> float:
    """How much the ELBO rose in the last fifth of a run, beyond noise."""
    values = np.asarray(history.column("objective"))
    fifth = max(1, len(values) // 5)
    if len(values) < 2 or not np.isfinite(values).all():
        return math.inf  # too short to tell
    after, before = values[-fifth:], values[-2 * fifth : -fifth]
    noise = math.sqrt((after.var() + before.var()) / fifth)
    return float(after.mean() - before.mean() - 2 * noise)
