"""Regression: a Gaussian process for real, positive, bounded and counted targets."""

from typing import Any

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from natgrad._registry import guesses
from natgrad.errors import InputError
from natgrad.sklearn._base import BaseGP, in_double
from natgrad.sklearn._targets import Targets, regression


class GPRegressor(RegressorMixin, BaseGP):
    """Gaussian process regression, for any number of rows, with nothing to tune.

    Parameters
    ----------
    likelihood : {"gaussian", "student-t", "heteroskedastic", "gamma", "beta", \
            "poisson", "negative-binomial"} or a likelihood, default="auto"
        What the targets are: real numbers with equal noise; with outliers; with noise
        that depends on the inputs; positive; between 0 and 1; or counts. "auto" is
        "gaussian" for fewer than 256 rows. With more, short runs compare the first
        three and keep the one with the highest ELBO. The parameters of a likelihood
        object are where training starts, in the units of y: `StudentT(2.0)` has a noise
        of scale 2 in these. The estimator standardizes y as it does for the name. A
        likelihood of your own sees y as it is.
    kernel : {"matern52", "matern32", "matern12", "rbf"} or a kernel, \
            default="matern52"
        How smooth the function is. Each input has a lengthscale of its own. The
        parameters of a kernel object are where training starts, in scaled units: those
        of inputs of deviation 1, and of y as the likelihood sees it.
    n_inducing : int or "auto", default="auto"
        How many inducing inputs stand for the rows. More follow finer detail and take
        longer; "auto" finds out how many help.
    max_iter : int or "auto", default="auto"
        The most steps that training may take. It stops by itself when the ELBO no
        longer rises, usually far earlier. "auto" is what takes a minute or two on a
        laptop, and 5,000 for batches; you are warned if the ELBO still rises then.
    minutes : float, default=None
        Training ends after so many minutes, if it has not ended before.
    batch_size : int or "auto", default="auto"
        Rows in a step. "auto" takes all rows of a table with at most 12,000, and
        batches of 256 rows of a larger one. With all rows the hyperparameters need no
        learning rate, and the ELBO never falls.
    random_state : int, RandomState or None, default=0
        The order of the rows and where the inducing inputs begin.
    verbose : bool, default=True
        Whether to show a progress bar, or lines in a log file.

    Attributes
    ----------
    model_ : natgrad.gp.SparseGP
        The model, in scaled units.
    history_ : natgrad.train.History
        How training went.
    elbo_ : float
        The evidence bound per row, in the units of the targets. With fewer than 128
        rows the misfit of the hyperparameters to their prior is taken off.
    lengthscales_ : ndarray of shape (n_features,)
        In the units of the inputs; infinite for an input that was constant.
    n_inducing_, n_iter_, fit_seconds_, converged_, message_
        The number of inducing inputs and of steps, the time, whether the bound had
        stopped rising, and why training ended.
    """

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        return regression(self.likelihood, y, weight)

    def _candidates(self, y: np.ndarray, weight: np.ndarray) -> list[Targets]:
        if isinstance(self.likelihood, str) and self.likelihood == "auto":
            noises = guesses("real", len(y))
            return [regression(noise, y, weight) for noise in noises]
        return super()._candidates(y, weight)

    def _numbers(self, y: Any) -> np.ndarray:
        return np.asarray(column_or_1d(y, warn=True), float)

    @in_double
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        quantiles: Any = None,
    ) -> Any:
        """The mean of the target at each row; or with its standard deviation.

        With `quantiles`, numbers between 0 and 1: what the target does not exceed with
        these probabilities, a column for each.
        """
        x = self._inputs(X)
        if quantiles is not None:
            if return_std:
                raise InputError("give return_std or quantiles, not both")
            levels = self._predictor.quantiles(x, quantiles)
            return levels * self.y_scale_ + self.y_mean_
        mean, var = self._predictor.predict(x)
        mean = mean * self.y_scale_ + self.y_mean_
        return (mean, np.sqrt(var) * self.y_scale_) if return_std else mean

    @in_double
    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """The probability of at most each target: uniform, if predictions are right."""
        x = self._inputs(X)
        return self._predictor.cdf(x, self._standard(self._numbers(y)))

    @in_double
    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
    ) -> np.ndarray:
        """Draws of the targets at all rows jointly, of shape (n_rows, n_samples)."""
        x = self._inputs(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        draws = self._predictor.sample(jax.random.key(seed), x, n_samples)
        return draws.T * self.y_scale_ + self.y_mean_
