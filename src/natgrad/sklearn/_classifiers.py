"""Classification: two classes or more, and classes in an order."""

from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from natgrad.errors import InputError
from natgrad.sklearn._base import BaseGP
from natgrad.sklearn._double import in_double
from natgrad.sklearn._targets import Targets, classification, ordinal


class _Classifier(ClassifierMixin, BaseGP):
    """Encodes labels as 0, 1, 2, ... in the order of `_order`."""

    def _learn_classes(self, y: Any, classes: Any) -> None:
        check_classification_targets(y)
        self.classes_ = np.unique(y if classes is None else classes)
        if len(self.classes_) < 2:
            raise InputError(
                f"y has only one class, {self.classes_.tolist()[0]!r}; a classifier "
                "needs at least two"
            )

    def _numbers(self, y: Any) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        places = np.searchsorted(self.classes_, y)
        places = np.minimum(places, len(self.classes_) - 1)
        is_new = self.classes_[places] != y
        if is_new.any():
            raise InputError(
                f"y has the class {y[is_new].tolist()[0]!r}, which is not in classes_: "
                f"{self.classes_[:10].tolist()}"
            )
        return np.argsort(self._order)[places].astype(float)

    @property
    def _order(self) -> np.ndarray:
        """The index in `classes_` of the model's classes 0, 1, 2, ..."""
        return np.arange(len(self.classes_))

    def _rules(self) -> dict[str, Any]:
        return {"dtype": np.float64}

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Any:
        """Updates the model with new rows, without those seen before.

        The first call is a `fit`; pass all `classes` if its rows may lack some.
        """
        return self._learn(X, y, sample_weight, classes)

    @in_double
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each of `classes_` at each row."""
        x, columns = self._asked(X)
        proba = self._predictor.probabilities(x, columns)[:, np.argsort(self._order)]
        return proba / proba.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class at each row."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]


class GPClassifier(_Classifier):
    """Gaussian process classification with calibrated probabilities.

    Parameters
    ----------
    likelihood : {"auto", "bernoulli", "softmax", "robust-max"} or a likelihood, \
            default="auto"
        "auto" is "bernoulli" for two classes and "softmax" for more. "robust-max"
        allows for labels that are wrong.
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf"} or a kernel, \
            default="auto"
        How smooth the latent functions are; "auto" is "matern52". Each input has a
        lengthscale of its own. Training starts at the parameters of a kernel object.
        Its lengthscales and periods are in the units of X; its variance is that of a
        latent function.
    columns : dict, default=None
        Columns of X that are no inputs, by name or place: {"weight": "w"} is how much a
        row counts, and {"offset": "b"} is added to the first latent function.
    n_inducing : int or "auto", default="auto"
        The number of inducing inputs. "auto" doubles them until more no longer help.
    max_iter : int or "auto", default="auto"
        The most steps of training. It stops by itself when the ELBO no longer rises.
        natgrad warns if the ELBO still rises at the end.
    minutes : float, default=None
        Training stops after this many minutes, if it has not stopped before.
    batch_size : int or "auto", default="auto"
        Rows in a step. "auto" takes all rows of a table with at most 12,000, and
        batches of 256 rows of a larger one.
    date_periods : list of {"day", "week", "year"}, default=()
        Periods of dates, each of which adds a sine and a cosine of every date.
    random_state : int, RandomState or None, default=0
        Determines the order of the rows and the initial inducing inputs.
    verbose : int or bool, default=1
        0 prints nothing. 1 shows a progress bar, or a line every ten seconds in a log
        file. 2 or more also prints every record of the run.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in the order of the columns of `predict_proba`.
    model_ : natgrad.gp.SparseGP
        The model, in scaled units.
    history_ : natgrad.train.History
        The records of training.
    elbo_ : float
        The ELBO per row.
    schema_ : natgrad.data._schema.Schema
        What natgrad did with each column; `schema_.features` names what the model sees.
    n_inducing_, n_iter_, fit_seconds_ : int, int, float
        The number of inducing inputs, the number of steps, and the seconds they took.
    converged_, message_ : bool, str
        Whether the ELBO had stopped rising, and why training stopped.

    >>> from natgrad.sklearn import GPClassifier
    >>> classifier = GPClassifier(n_inducing=10, verbose=0).fit(points, labels)
    >>> print(classifier.predict([[0.5, 0.5], [-0.5, -0.5]]))
    [ True False]
    >>> print(classifier.predict_proba([[0.5, 0.5]]).round(1))
    [[0. 1.]]
    """

    def _candidates(
        self, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
    ) -> list[Targets]:
        return [classification(self.likelihood, len(self.classes_))]


class GPOrdinal(_Classifier):
    """Ordinal regression: ordered classes, such as marks from 1 to 5.

    Parameters
    ----------
    likelihood : {"auto", "ordinal"} or a likelihood, default="auto"
        Both names learn the thresholds between classes.
    categories : list, default=None
        The classes in order, the lowest first. Numbers and a pandas column of ordered
        categories have an order of their own. Three or more strings without one raise
        an error.
    kernel : {"auto", "matern52", "matern32", "matern12", "rbf"} or a kernel, \
            default="auto"
        How smooth the latent function is, as for `GPClassifier`.
    columns : dict, default=None
        Columns of X that are no inputs, as for `GPClassifier`.
    n_inducing : int or "auto", default="auto"
        The number of inducing inputs. "auto" doubles them until more no longer help.
    max_iter : int or "auto", default="auto"
        The most steps of training. It stops by itself when the ELBO no longer rises.
    minutes : float, default=None
        Training stops after this many minutes, if it has not stopped before.
    batch_size : int or "auto", default="auto"
        Rows in a step, as for `GPClassifier`.
    date_periods : list of {"day", "week", "year"}, default=()
        Periods of dates, each of which adds a sine and a cosine of every date.
    random_state : int, RandomState or None, default=0
        Determines the order of the rows and the initial inducing inputs.
    verbose : int or bool, default=1
        How much is printed, as for `GPClassifier`.

    Attributes
    ----------
    categories_ : ndarray
        The classes in order.
    classes_ : ndarray
        The classes as scikit-learn sorts them: the order of the columns of
        `predict_proba`.
    model_, history_, schema_, elbo_, n_inducing_, n_iter_, fit_seconds_, converged_, \
            message_
        As those of `GPClassifier`.

    >>> from natgrad.sklearn import GPOrdinal
    >>> marks = np.digitize(y, [-0.5, 0.5])  # 0, 1 or 2
    >>> ordinal = GPOrdinal(n_inducing=10, verbose=0).fit(x, marks)
    >>> print(ordinal.predict([[0.25], [0.8]]))
    [2 0]
    """

    def __init__(
        self,
        likelihood: Any = "auto",
        *,
        categories: Any = None,
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
        super().__init__(
            likelihood,
            kernel=kernel,
            columns=columns,
            n_inducing=n_inducing,
            max_iter=max_iter,
            minutes=minutes,
            batch_size=batch_size,
            date_periods=date_periods,
            random_state=random_state,
            verbose=verbose,
        )
        self.categories = categories

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        classes: Any = None,
        **options: Any,
    ) -> Any:
        # Before scikit-learn's check makes an array of y, which has no order.
        classes = _order_of(y) or classes
        return super()._fit(X, y, sample_weight, classes, **options)

    def _learn_classes(self, y: Any, classes: Any) -> None:
        order = None if self.categories is None else _Order(self.categories)
        if order is None and isinstance(classes, _Order):
            order = classes
        super()._learn_classes(y, classes if order is None else order.classes)
        self.categories_ = _ordered(self.classes_, order)

    @property
    def _order(self) -> np.ndarray:
        return np.searchsorted(self.classes_, self.categories_)

    def _candidates(
        self, y: np.ndarray, weight: np.ndarray, columns: dict[str, np.ndarray]
    ) -> list[Targets]:
        if isinstance(self.likelihood, str) and self.likelihood in ("auto", "ordinal"):
            return [ordinal(y.astype(int), weight, len(self.classes_))]
        return [classification(self.likelihood, len(self.classes_))]


class _Order(NamedTuple):
    """Classes whose order is known, the lowest first."""

    classes: Any


def _order_of(y: Any) -> _Order | None:
    """The order of a pandas column of ordered categories."""
    dtype = getattr(y, "dtype", None)
    if not getattr(dtype, "ordered", False):
        return None
    return _Order(cast(Any, dtype).categories.to_numpy())


def _ordered(classes: np.ndarray, order: _Order | None) -> np.ndarray:
    """The classes in their given order, or in that of numbers."""
    if order is not None:
        given = np.asarray(order.classes)
        if len(given) != len(classes):
            twice = next(each for each in classes.tolist() if (given == each).sum() > 1)
            raise InputError(
                f"categories has {twice!r} more than once; list each class once"
            )
        return given
    is_text = any(isinstance(each, str) for each in classes.tolist())
    if is_text and len(classes) > 2:
        guess = classes.tolist()[:10]
        more = ", ..." if len(classes) > 10 else ""
        raise InputError(
            f"the {len(classes)} classes in y are strings, whose order is not known; "
            f"alphabetical would be {' < '.join(map(repr, guess))}{more}. Pass their "
            "order, the lowest first, as GPOrdinal(categories=[...]), or make y a "
            "column of ordered categories or of numbers"
        )
    return classes
