"""The base of all estimators: from a table to a trained model and back to its units."""

import math
import time
from typing import Any, Unpack, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from natgrad import gp
from natgrad._annotations import Positive, require
from natgrad._codec import from_json, to_json
from natgrad._registry import KERNELS, MANY
from natgrad._text import require_choice
from natgrad.data._batches import Batch, Columns
from natgrad.data._prepare import Stream
from natgrad.data._schema import EncodedRows, Schema
from natgrad.errors import InputWarning, warn
from natgrad.gp import _baseline as baseline, _few_rows as few_rows
from natgrad.gp._files import FORMAT
from natgrad.sklearn import (
    _columns as columns,
    _export as export,
    _files as files,
    _inputs as inputs,
    _streaming as streaming,
    _summary as summary,
    _training as training,
)
from natgrad.sklearn._double import in_double
from natgrad.sklearn._fields import Level, Limit, SavedHistory
from natgrad.sklearn._kernels import is_convertible, lengthscales
from natgrad.sklearn._outputs import require_outputs
from natgrad.sklearn._targets import (
    Targets,
    centre_and_deviation,
    input_scales,
    is_constant,
    merge_duplicates,
    weights,
)
from natgrad.train._history import History
from natgrad.train._loop import CONVERGED
from natgrad.train._options import Options
from natgrad.train._signals import INTERRUPTED


FEW = 256
"""With at most this many rows, repeated rows are merged and weighted."""

STILL = 0.01
"""A converged run gains at most this in its last fifth, in nats per row."""

FAR = 1e100
"""Scaled inputs are clipped here: the square of 1e200 is infinite."""


class BaseGP(BaseEstimator):
    """Scales the inputs; a subclass defines its targets."""

    def __init__(
        self,
        likelihood: Any = "auto",
        *,
        kernel: Any = "auto",
        columns: Any = None,
        n_inducing: Any = "auto",
        max_iter: Any = "auto",
        minutes: Any = None,
        batch_size: Any = "auto",
        date_periods: Any = (),
        random_state: Any = 0,
        verbose: Any = 1,
    ):
        # `fit` checks them, as scikit-learn demands.
        self.likelihood = likelihood
        self.kernel = kernel
        self.columns = columns
        self.n_inducing = n_inducing
        self.max_iter = max_iter
        self.minutes = minutes
        self.batch_size = batch_size
        self.date_periods = date_periods
        self.random_state = random_state
        self.verbose = verbose

    def _candidates(
        self, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
    ) -> list[Targets]:
        """The likelihoods to compare, all in the same units of encoded targets."""
        raise NotImplementedError

    def _learn_classes(self, y: Any, classes: Any) -> None:
        """Stores the classes; only classifiers have them."""

    def _numbers(self, y: Any) -> np.ndarray:
        """Targets as numbers, encoded as in `fit`."""
        raise NotImplementedError

    def _without_copies(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows to learn from; only noise of real targets is misled by copies."""
        return x, y, weight

    # Learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the model to rows of inputs and their targets.

        X is an array or a frame of pandas, polars or Arrow. Text and categories become
        a column of zeros and ones for each value, dates become days since the first,
        and a missing number becomes the mean, with an indicator. `schema_` and
        `print` show what natgrad did with each column. `sample_weight` says how much
        each row counts, by default 1.

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
        schema: Any = None,
        is_piece: bool = False,
        **options: Unpack[Options],
    ) -> Any:
        """As `fit`, of rows in memory or on disk; `options` are those of `gp.fit`.

        If the rows are a piece, others follow by `partial_fit`.
        """
        if isinstance(X, Stream):
            training.train_stream(self, X, classes, options)
            return self
        began = time.monotonic()
        self._check_parameters()
        X, y, weight, others = self._table(X, y, sample_weight, schema, True)
        self._learn_classes(y, classes)
        y = self._numbers(y)
        total = float(weight.sum())
        if not others and not is_piece:
            X, y, weight = self._without_copies(X, y, weight)
        if len(y) <= FEW and not others and y.ndim == 1:
            X, y, weight = merge_duplicates(X, y, weight)
        centre, deviation = centre_and_deviation(X, weight)
        candidates, rows, seed = self._scale(centre, deviation, X, y, weight, others)
        fitted = training.trained(self, rows, candidates, seed, is_piece, options)
        share = np.average(~np.isnan(y), axis=0, weights=weight)
        self._keep(fitted, total, time.monotonic() - began, share)
        last = fitted.history[-1]
        value = last.objective if last.score is None else last.score
        doubt = _reason_to_doubt(self, value, rows, weight)
        if doubt is not None:
            warn(doubt, InputWarning)
        return self

    def _scale(
        self,
        centre: np.ndarray,
        deviation: np.ndarray,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        target_columns: Columns,
    ) -> tuple[list[Targets], Batch, int]:
        """Sets the units; the candidates, the rows in these units, and a seed."""
        scale = input_scales(x, deviation)
        if not is_convertible(self.kernel):  # it sees the inputs as they are
            is_fixed = is_constant(scale)
            centre, scale = np.where(is_fixed, (centre, scale), [[0.0], [1.0]])
        self.x_mean_, self.x_scale_ = centre, scale
        candidates = self._candidates(y, weight, target_columns)
        self.y_mean_, self.y_scale_ = candidates[0].centre, candidates[0].scale
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        likelihood = candidates[0].likelihood
        return candidates, self._batch(x, y, weight, target_columns, likelihood), seed

    def _table(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        schema: Any = None,
        is_first: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """The rows that count, their targets, weights and the columns with them."""
        X, others = columns.taken(X, self.columns)
        X, y = self._paired(X, y, schema, is_first)
        weight = weights(X, sample_weight, others.pop("weight", None))
        kept = weight > 0
        others = {name: column[kept] for name, column in others.items()}
        return X[kept], y[kept], weight[kept], others

    def _batch(
        self,
        x: np.ndarray,
        y: np.ndarray,
        weight: Any,
        others: Columns,
        likelihood: Any,
    ) -> Batch:
        """Rows in the model's units; `others` are the columns that come with y."""
        others = columns.in_units(others, self._units(likelihood), y)
        return Batch(self._scaled(x), self._standard(y), weight, others)

    def _units(self, likelihood: Any) -> Targets:
        return Targets(likelihood, self.y_mean_, self.y_scale_)

    @in_double
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Updates the model with new rows, without those seen before.

        The first call is a `fit`. In later calls the posterior, the lengthscales, the
        noise and the inducing inputs follow the new rows, which may come in any order.
        The kind of noise, and what is done with each column, stay as they are. Of rows
        that are gone, the model keeps a random sample of 1,000, until you save it.
        """
        return self._learn(X, y, sample_weight)

    @in_double
    def _learn(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        is_first = not hasattr(self, "model_")
        if is_first:
            self._fit(X, y, sample_weight, classes, is_piece=True)
        X, y, weight, others = self._table(X, y, sample_weight)
        y = self._numbers(y)
        if is_first:  # the rows are kept until the next call
            likelihood = self.model_.likelihood
            self._online = self._batch(X, y, weight, others, likelihood)
        elif len(y):
            streaming.learn(self, X, y, weight, others)
        return self

    def _set_model(self, model: gp.SparseGP) -> None:
        """Stores a model and its predictor."""
        self.model_, self._predictor = model, gp.predictor(model)
        self.n_inducing_ = len(model.inducing)

    def _keep(
        self, fitted: Any, total: float, seconds: float, share: Any = 1.0
    ) -> None:
        """Stores the results of a run, in the user's units.

        `share` is how many of the targets were observed, of each output.
        """
        self._set_model(fitted.params)
        vars(self).pop("_online", None)
        self.history_ = history = fitted.history
        self.n_rows_seen_ = total
        self.n_iter_ = int(history[-1].step)
        self.elbo_ = history[-1].objective - float(
            np.sum(share * np.log(self.y_scale_))
        )
        self.fit_seconds_ = seconds
        self.message_ = history.reason
        gain = 0.0 if history.reason == CONVERGED else _late_gain(history)
        is_interrupted = history.reason == INTERRUPTED
        self.converged_ = not is_interrupted and not gain > STILL
        if is_interrupted:
            return
        if not self.converged_:
            rise = f"rose by {gain:.2g} nats per row" if gain < math.inf else "may rise"
            self.message_ += f"; the ELBO still {rise}"
            more = "max_iter" if self.minutes is None else "max_iter or more minutes"
            warn(
                f"the ELBO still {rise} at the end of {self.n_iter_} steps; use a "
                f"larger {more}",
                ConvergenceWarning,
            )
        elif history.reason != CONVERGED:
            self.message_ += "; the ELBO no longer rises"

    def _check_parameters(self) -> None:
        columns.check(self.columns)
        if isinstance(self.kernel, str):
            known = ("auto", *KERNELS)
            require_choice("kernel", self.kernel, known, ", or a kernel itself")
        hints: dict[str, Any] = dict.fromkeys(
            ("n_inducing", "max_iter", "batch_size"), Limit
        )
        hints["verbose"] = Level
        if self.minutes is not None:
            hints["minutes"] = Positive
        for name, hint in hints.items():
            value = getattr(self, name)
            plain = value.item() if isinstance(value, np.generic) else value
            require(name, plain, hint)

    def _rules(self) -> dict[str, Any]:
        """How scikit-learn validates the table."""
        return {"dtype": np.float64, "y_numeric": True}

    def _paired(self, X: Any, y: Any, schema: Any, is_first: bool) -> tuple[Any, Any]:
        """The inputs as numbers and the targets, as scikit-learn checks them."""
        if is_first:
            return inputs.learn(self, X, y, schema)
        return inputs.encode(self, X, y)

    # Prediction

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip((x - self.x_mean_) / self.x_scale_, -FAR, FAR)

    def _standard(self, y: np.ndarray) -> np.ndarray:
        require_outputs(y, self.y_mean_)
        return (y - self.y_mean_) / self.y_scale_

    def _rows(self, X: Any, is_target_known: bool = True) -> EncodedRows:
        """The rows of a table as numbers, and the columns that come with targets.

        The numbers are in the order of `schema_.features`.
        """
        check_is_fitted(self)
        X, others = columns.taken(X, self.columns, is_target_known)
        others.pop("weight", None)
        return EncodedRows(inputs.encode(self, X), others)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _asked(self, X: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Scaled inputs, and the columns that come with the targets to predict."""
        rows = self._rows(X, is_target_known=False)
        units = self._units(self.model_.likelihood)
        return self._scaled(rows.x), columns.in_units(rows.columns, units)

    @in_double
    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """The log predictive density of each target, in its own units.

        That of a target that is known by bounds is the log probability of these.
        """
        rows, likelihood = self._rows(X), self.model_.likelihood
        batch = self._batch(rows.x, self._numbers(y), None, rows.columns, likelihood)
        others = batch.columns
        log_density = self._predictor.log_density(batch.x, batch.y, others)
        is_density = True
        if "upper" in others:
            is_density = ~(others["lower"] < others["upper"])
        return log_density - np.where(is_density, np.log(self.y_scale_), 0.0)

    # What was learned: shown, saved and exported

    @in_double
    def save(self, path: Any, metadata: dict[str, Any] | None = None) -> None:
        """Saves a fitted estimator to one file, which `natgrad.sklearn.load` loads.

        `metadata` is a dictionary of JSON values to store with it.
        """
        check_is_fitted(self)
        files.save(self, path, metadata)

    @in_double
    def to_onnx(self, path: Any, quantiles: Any = ()) -> None:
        """Writes predictions as an ONNX model.

        Its outputs are "mean", "std" and "quantiles", or "probabilities", "class_index"
        and "label", as in `predict` and `predict_proba`. `quantiles` are levels between
        0 and 1. The input "x" is rows of the table in float64, with NaN where a number
        is missing. If the table has categories or dates, its columns are those of
        `schema_.features`. Needs the package `onnx`.
        """
        export.to_onnx(self, path, quantiles)

    @in_double
    def to_stablehlo(self, path: Any, quantiles: Any = ()) -> None:
        """Writes predictions as a function for `jax.export.deserialize`.

        It takes the rows of `to_onnx`. Its outputs are the same without "label", as
        StableHLO has no text: `class_index` is an index into `classes_`. Needs the
        package `flatbuffers`.
        """
        export.to_stablehlo(self, path, quantiles)

    @property
    @in_double
    def lengthscales_(self) -> np.ndarray:
        """The lengthscale of each of `schema_.features`, in its own units.

        It is infinite for a constant input, which has no effect. If the kernel is a
        sum, 1/ℓ² is the mean of those of its parts, weighted by their variances.
        """
        check_is_fitted(self)
        lengthscale = lengthscales(self.model_.kernel)
        if lengthscale is None:
            raise AttributeError(
                f"{type(self.model_.kernel).__name__} has no lengthscales"
            )
        scale = np.where(is_constant(self.x_scale_), np.inf, self.x_scale_)
        return np.broadcast_to(lengthscale, scale.shape) * scale

    @property
    def inducing_points_(self) -> np.ndarray:
        """The inducing inputs, in the units of the table, as `schema_.features`."""
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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # Pickles hold the model as a natgrad file, and no compiled code.

    @in_double
    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "model_" in state:
            del state["_predictor"]
            state.pop("_online", None)  # a file holds no rows
            state["model_"] = FORMAT.pack(state["model_"])
            # In plain values, which need no class of natgrad's to be trusted.
            state["schema_"] = state["schema_"].to_dict()
            history = state["history_"]
            state["history_"] = to_json(
                SavedHistory(history.reason, (*history.records,)), {}
            )
        return state

    @in_double
    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            state = dict(state)
            self._set_model(FORMAT.unpack(*state.pop("model_")))
            state["schema_"] = Schema.from_dict(state["schema_"])
            run = from_json(state["history_"], SavedHistory, "history_", {})
            state["history_"] = files.as_attribute(run)
        super().__setstate__(state)


# What an estimator warns of after a fit


def _reason_to_doubt(
    estimator: Any, elbo: float, rows: Batch, weight: np.ndarray
) -> str | None:
    """Why a fit of real targets may be worse than it says, if there is a reason.

    The ELBO is per row; the log density of held-out rows can take its place.
    """
    noise, y = estimator.model_.likelihood, rows.y
    if rows.columns:
        return None
    if noise.outputs is not None:
        return few_rows.few(len(y))
    if noise.observed.parameters is None:
        return baseline.worse(elbo, y, weight) if np.any(y != np.round(y)) else None
    if not noise.is_location:
        return None
    doubt = few_rows.few(len(y))
    if doubt is None and len(np.unique(y)) == 2:
        doubt = (
            "the targets have two values only, and real noise may fit them "
            "too closely; use GPClassifier for the probability of each"
        )
    if doubt is None and estimator.message_ == CONVERGED:
        doubt = baseline.worse(elbo, y, weight)
    if doubt is None and len(y) < MANY and isinstance(noise, gp.likelihoods.Gaussian):
        doubt = baseline.tails(rows, estimator._predictor.predict, noise.variance)
    return doubt


def _late_gain(history: History) -> float:
    """How much the ELBO rose in the last fifth of a run, beyond noise."""
    values = np.asarray(history.column("objective"))
    fifth = max(1, len(values) // 5)
    if len(values) < 2 or not np.isfinite(values).all():
        return math.inf  # too short to tell
    after, before = values[-fifth:], values[-2 * fifth : -fifth]
    noise = math.sqrt((after.var() + before.var()) / fifth)
    return float(after.mean() - before.mean() - 2 * noise)
