"""One output of a regressor with several, as a regressor of its own."""

from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from natgrad.errors import InputError


class OneOutput:
    """What `GPRegressor.output` returns.

    It predicts one target, and has all other attributes of the regressor. Metrics,
    pictures and reports take it as they take a regressor of one output.
    """

    def __init__(self, regressor: Any, place: int):
        likelihood = regressor.model_.likelihood
        if likelihood.outputs is None:
            raise InputError("the regressor has one output; use it as it is")
        if not 0 <= place < likelihood.outputs:
            raise InputError(
                f"output {place} does not exist; there are outputs 0 to "
                f"{likelihood.outputs - 1}"
            )
        self._regressor, self._place = regressor, place
        self.likelihood_ = likelihood.likelihoods[place]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_regressor", "_place"):
            raise AttributeError(name)  # a copy has no fields at first
        return getattr(self._regressor, name)

    def __repr__(self) -> str:
        return f"{self._regressor!r}.output({self._place})"

    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:
        """The mean of the target at each row; the options are the regressor's."""
        found = self._regressor.predict(X, return_std, quantiles)
        if return_std:
            return tuple(each[:, self._place] for each in found)
        return found[:, self._place]

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """The log density of the target at each row."""
        return self._regressor.log_density(X, self._in_table(y))[:, self._place]

    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """The probability that the target is at most y, at each row."""
        return self._regressor.cdf(X, self._in_table(y))[:, self._place]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Joint draws of the target at all rows, of shape (n_rows, n_samples)."""
        return self._regressor.sample_y(X, n_samples, random_state)[:, self._place]

    def score(self, X: Any, y: Any) -> float:
        """The coefficient of determination, R²."""
        return float(r2_score(y, self.predict(X)))

    def _in_table(self, y: Any) -> np.ndarray:
        """A table with the target in its column and NaN in all others."""
        y = np.asarray(y, float)
        table = np.full((len(y), self._regressor.model_.likelihood.outputs), np.nan)
        table[:, self._place] = y
        return table
