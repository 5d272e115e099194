"""What a fitted estimator shows, saves and exports."""

from typing import Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from natgrad import gp
from natgrad.data._schema import Schema
from natgrad.gp._files import from_bytes, to_bytes
from natgrad.sklearn import _export as export, _files as files, _summary as summary
from natgrad.sklearn._double import in_double
from natgrad.sklearn._kernels import lengthscales
from natgrad.sklearn._targets import is_constant
from natgrad.train._history import History


class Fitted:
    """The part of an estimator that only looks at what was learned."""

    model_: gp.SparseGP
    x_mean_: np.ndarray
    x_scale_: np.ndarray
    _set_model: Any

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
        return table + cast(Any, super())._html_repr()

    # Pickles hold the model as a natgrad file, and no compiled code.

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @in_double
    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "model_" in state:
            del state["_predictor"]
            state.pop("_online", None)  # a file holds no rows
            state["model_"] = to_bytes(state["model_"])
            state["history_"] = state["history_"].to_dict()
            if "schema_" in state:
                state["schema_"] = state["schema_"].to_dict()
        return state

    @in_double
    def __setstate__(self, state: dict[str, Any]) -> None:
        if "model_" in state:
            history = History.from_dict(state["history_"])
            state = {**state, "history_": history}
            if "schema_" in state:
                state["schema_"] = Schema.from_dict(state["schema_"])
            self._set_model(from_bytes(*state.pop("model_")))
        cast(Any, super()).__setstate__(state)
