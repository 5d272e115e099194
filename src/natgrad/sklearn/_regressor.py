"""Regression: a Gaussian process for real, positive, bounded and counted targets."""

from typing import Any

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from natgrad._registry import MANY, guesses
from natgrad.errors import InputError, InputWarning, warn
from natgrad.sklearn import _outputs as outputs
from natgrad.sklearn._base import BaseGP
from natgrad.sklearn._columns import chosen
from natgrad.sklearn._double import in_double
from natgrad.sklearn._targets import Targets, regression, without_copies


class GPRegressor(RegressorMixin, BaseGP):
    """Gaussian process regression with uncertainty, for small and large tables.

    Parameters
    ----------
    likelihood : {"auto", "gaussian", "student-t", "heteroskedastic", "gamma", \
            "weibull", "beta", "poisson", "negative-binomial", \
            "zero-inflated-poisson", "zero-inflated-negative-binomial", \
            "binomial"}, a likelihood or a list of them, default="auto"
        What the targets are: real numbers with constant noise; with outliers; with
        noise that depends on the inputs; positive; between 0 and 1; or counts. "auto"
        is "gaussian" for fewer than 256 rows. With more, short runs compare the first
        three and keep the one with the highest ELBO; "gaussian" with many inducing
        inputs then takes its place if it is better. Training starts at the parameters
        of a likelihood object, which are in the units of y: `StudentT(2.0)` has a noise
        scale of 2. The estimator standardizes y as for the name. A likelihood of your
        own sees y as it is. If y has several columns, a list has one for each, "auto"
        is "gaussian", and "heteroskedastic" is not available.
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf"} or a kernel, \
            default="auto"
        How smooth the function is. "auto" is "matern52". With "gaussian" noise and 256
        rows or more, and 20 for each input, a rough part is added, a "matern12" with
        lengthscales and variance of its own. Each input has its lengthscale. Training
        starts at the parameters of a kernel object. Its lengthscales and periods are
        in the units of X; its variance is relative to y as the likelihood sees it,
        which for real noise has variance 1. `Linear` and `Polynomial` see X minus its
        mean. natgrad converts kernels of scikit-learn. It cannot convert `FromFunction`
        or a class of your own that is not just a function of ‖(x − z)/ℓ‖: these see X
        as it is. For several outputs, `Separate` has a kernel for each latent function.
    columns : dict, default=None
        Columns of X that come with y instead of being inputs, by name or place:
        {"exposure": "years"}. "exposure" is what a count or a positive target is
        proportional to, and "offset" is added to the latent function. "trials" makes y
        the successes of so many. "noise_sd" is the known noise of each target. "event"
        is 1 where y was observed and 0 where the target is larger (right-censored);
        "lower" and "upper" are bounds of the target, equal where y was observed and
        missing where there is none. "weight" is how much a row counts. Predictions use
        the columns that X has. Without them an exposure is 1, and so are trials.
    n_inducing : int or "auto", default="auto"
        The number of inducing inputs. More follow finer detail and take longer. "auto"
        doubles them until more no longer help, at most to 200. With "gaussian" noise,
        every row is one up to 1,000 rows, and up to 312,500 rows there are at most
        2,000. A sample of 1,000 rows then determines the hyperparameters.
    max_iter : int or "auto", default="auto"
        The most steps of training. It stops by itself when the ELBO no longer rises,
        usually far earlier. "auto" takes a minute or two on a laptop, and 5,000 steps
        with batches. natgrad warns if the ELBO still rises at the end.
    minutes : float, default=None
        Training stops after this many minutes, if it has not stopped before.
    batch_size : int or "auto", default="auto"
        Rows in a step. "auto" takes all rows of a table with at most 12,000, and
        batches of 256 rows of a larger one. With all rows the hyperparameters need no
        learning rate, and the ELBO never falls.
    date_periods : list of {"day", "week", "year"}, default=()
        Periods of dates, each of which adds a sine and a cosine of every date.
    random_state : int, RandomState or None, default=0
        Determines the order of the rows and the initial inducing inputs.
    verbose : int or bool, default=1
        0 prints nothing. 1 shows a progress bar, or a line every ten seconds in a log
        file. 2 or more also prints every record of the run.

    Attributes
    ----------
    model_ : natgrad.gp.SparseGP
        The model, in scaled units.
    history_ : natgrad.train.History
        The records of training.
    elbo_ : float
        The ELBO per row, in the units of the targets. With fewer than 128 rows it
        includes the log prior of the hyperparameters. If natgrad learned these from a
        sample, it is the log marginal likelihood of the sample, per row, plus the log
        prior of the noise.
    schema_ : natgrad.data._schema.Schema
        What natgrad did with each column; `schema_.features` names what the model sees.
    n_inducing_, n_iter_, fit_seconds_ : int, int, float
        The number of inducing inputs, the number of steps, and the seconds they took.
    converged_, message_ : bool, str
        Whether the ELBO had stopped rising, and why training stopped.

    If y has several columns, each is an output, and the outputs are mixtures of latent
    functions: `gp.likelihoods.LinearCoregionalization`. NaN in y is a value that was
    not observed.

    >>> from natgrad.sklearn import GPRegressor
    >>> regressor = GPRegressor(verbose=0).fit(x, y)
    >>> mean, std = regressor.predict([[0.25]], return_std=True)
    >>> print(mean.round(1), std.round(1))
    [0.9] [0.1]
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _paired(self, X: Any, y: Any, schema: Any, is_first: bool) -> tuple[Any, Any]:
        if not outputs.is_several(y):
            return super()._paired(X, y, schema, is_first)
        y = outputs.checked(y, is_first)
        return super()._paired(X, np.zeros(len(y)), schema, is_first)[0], y

    def _candidates(
        self, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
    ) -> list[Targets]:
        if outputs.is_several(y):
            return outputs.candidates(self.likelihood, self.kernel, y, weight, columns)
        noises = chosen(self.likelihood, y, columns) or guesses("real", len(y))
        return [regression(noise, y, weight, columns) for noise in noises]

    def _without_copies(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if isinstance(self.likelihood, str):
            is_real = self.likelihood in ("auto", *guesses("real", MANY))
        else:
            is_real = getattr(self.likelihood, "is_location", False)
        # Copies mislead only if nearly every row is an inducing input.
        if not is_real or self.n_inducing != "auto" or outputs.is_several(y):
            return x, y, weight
        rows = len(y)
        x, y, weight, copies = without_copies(x, y, weight)
        if copies:
            warn(
                f"{copies:,} of {rows:,} rows are copies: another row has the same "
                "inputs and the same target. natgrad counts each row once, because "
                "copies say nothing about the noise. Scores on held-out rows are too "
                "good if copies of them are among the training rows",
                InputWarning,
            )
        return x, y, weight

    def _numbers(self, y: Any) -> np.ndarray:
        if outputs.is_several(y):
            return outputs.numbers(y)
        return np.asarray(column_or_1d(y, warn=True), float)

    @in_double
    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:
        """The mean of the target at each row, [N], or of each output, [N, P].

        With `return_std`, returns the mean and the standard deviation. With
        `quantiles`, levels between 0 and 1, returns a column for each of them,
        [N, levels] or [N, P, levels].

        Raises:
            InputError: If you pass both `return_std` and `quantiles`.
        """
        x, columns = self._asked(X)
        if quantiles is not None:
            if return_std:
                raise InputError("pass return_std or quantiles, not both")
            return self._in_units(self._predictor.quantiles(x, quantiles, columns))
        mean, var = self._predictor.predict(x, columns)
        mean = mean * self.y_scale_ + self.y_mean_
        return (mean, np.sqrt(var) * self.y_scale_) if return_std else mean

    @in_double
    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """The probability that the target is at most y, at each row."""
        x, columns = self._asked(X)
        y = self._standard(self._numbers(y))
        return self._predictor.cdf(x, y, columns)

    @in_double
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of the targets at all rows, of shape (n_rows, n_samples).

        With several outputs it is (n_rows, n_outputs, n_samples).
        """
        x, columns = self._asked(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        draws = self._predictor.sample(jax.random.key(seed), x, n_samples, columns)
        return self._in_units(np.moveaxis(draws, 0, -1))

    def output(self, place: int) -> "OneOutput":
        """One of several outputs, which predicts as a regressor of one target does.

        Use it for pictures, metrics and reports.

        Raises:
            InputError: If there is no such output, or only one.
        """
        check_is_fitted(self)
        return OneOutput(self, place)

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        """Values with a last axis of several for each target, in its units."""
        scale, mean = (
            np.expand_dims(each, -1) for each in (self.y_scale_, self.y_mean_)
        )
        return values * scale + mean


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
