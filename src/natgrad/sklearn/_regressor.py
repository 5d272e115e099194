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
    """Gaussian process regression with uncertainty, for small and large tables.

    Parameters
    ----------
    likelihood : {"auto", "gaussian", "student-t", "heteroskedastic", "gamma", \
            "beta", "poisson", "negative-binomial"} or a likelihood, default="auto"
        What the targets are: real numbers with constant noise; with outliers; with
        noise that depends on the inputs; positive; between 0 and 1; or counts. "auto"
        is "gaussian" for fewer than 256 rows. With more, short runs compare the first
        three and keep the one with the highest ELBO. Training starts at the parameters
        of a likelihood object, which are in the units of y: `StudentT(2.0)` has a noise
        scale of 2. The estimator standardizes y as for the name. A likelihood of your
        own sees y as it is.
    kernel : {"matern52", "matern32", "matern12", "rbf"} or a kernel, \
            default="matern52"
        How smooth the function is. Each input has a lengthscale of its own. Training
        starts at the parameters of a kernel object. Its lengthscales and periods are
        in the units of X; its variance is relative to y as the likelihood sees it,
        which for real noise has variance 1. `Linear` and `Polynomial` see X minus its
        mean. natgrad cannot convert a kernel of tinygp or GPJax, a function, or a class
        of your own that is not just a function of ‖(x − z)/ℓ‖: these see X as it is.
    n_inducing : int or "auto", default="auto"
        The number of inducing inputs. More follow finer detail and take longer. "auto"
        doubles them until more no longer help.
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
        includes the log prior of the hyperparameters.
    n_inducing_, n_iter_, fit_seconds_ : int, int, float
        The number of inducing inputs, the number of steps, and the seconds they took.
    converged_, message_ : bool, str
        Whether the ELBO had stopped rising, and why training stopped.

    >>> from natgrad.sklearn import GPRegressor
    >>> regressor = GPRegressor(verbose=0).fit(x, y)
    >>> mean, std = regressor.predict([[0.25]], return_std=True)
    >>> print(mean.round(1), std.round(1))
    [0.9] [0.1]
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
        """The mean of the target at each row.

        With `return_std`, returns the mean and the standard deviation. With
        `quantiles`, levels between 0 and 1, returns a column for each of them.

        Raises:
            InputError: If you pass both `return_std` and `quantiles`.
        """
        x = self._inputs(X)
        if quantiles is not None:
            if return_std:
                raise InputError("pass return_std or quantiles, not both")
            levels = self._predictor.quantiles(x, quantiles)
            return levels * self.y_scale_ + self.y_mean_
        mean, var = self._predictor.predict(x)
        mean = mean * self.y_scale_ + self.y_mean_
        return (mean, np.sqrt(var) * self.y_scale_) if return_std else mean

    @in_double
    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """The probability that the target is at most y, at each row."""
        x = self._inputs(X)
        return self._predictor.cdf(x, self._standard(self._numbers(y)))

    @in_double
    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
    ) -> np.ndarray:
        """Joint draws of the targets at all rows, of shape (n_rows, n_samples)."""
        x = self._inputs(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        draws = self._predictor.sample(jax.random.key(seed), x, n_samples)
        return draws.T * self.y_scale_ + self.y_mean_
