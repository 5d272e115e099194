"""Classification: two classes or more, and classes in an order."""

from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from natgrad.errors import InputError
from natgrad.sklearn._base import BaseGP, in_double
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
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        """Updates the model with new rows, without those seen before.

        The first call is a `fit`; pass all `classes` if its rows may lack some.
        """
        if not hasattr(self, "model_"):
            return self._fit(X, y, sample_weight, classes)
        return super().partial_fit(X, y, sample_weight)

    @in_double
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each of `classes_` at each row."""
        x = self._inputs(X)
        proba = self._predictor.probabilities(x)[:, np.argsort(self._order)]
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

    The other parameters and the attributes are those of `GPRegressor`, and `classes_`.
    """

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        return classification(self.likelihood, len(self.classes_))


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

    Attributes
    ----------
    categories_ : ndarray
        The classes in order.
    classes_ : ndarray
        The classes as scikit-learn sorts them: the order of the columns of
        `predict_proba`.

    The other parameters and attributes are those of `GPRegressor`.
    """

    def __init__(
        self,
        likelihood: Any = "auto",
        *,
        categories: Any = None,
        kernel: Any = "matern52",
        n_inducing: Any = "auto",
        max_iter: Any = "auto",
        minutes: Any = None,
        batch_size: Any = "auto",
        random_state: Any = 0,
        verbose: Any = 1,
    ):
        super().__init__(
            likelihood,
            kernel=kernel,
            n_inducing=n_inducing,
            max_iter=max_iter,
            minutes=minutes,
            batch_size=batch_size,
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

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Targets:
        if isinstance(self.likelihood, str) and self.likelihood in ("auto", "ordinal"):
            return ordinal(y.astype(int), weight, len(self.classes_))
        return classification(self.likelihood, len(self.classes_))


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
