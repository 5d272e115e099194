"""Loading what an estimator's `save` wrote; `mlflow.pyfunc` loads it by this module."""

from typing import Any

import numpy as np

from natgrad.sklearn import _files as files
from natgrad.sklearn._classifiers import GPClassifier, GPOrdinal
from natgrad.sklearn._double import in_double
from natgrad.sklearn._regressor import GPRegressor


KINDS = {kind.__name__: kind for kind in (GPRegressor, GPClassifier, GPOrdinal)}


@in_double
def load(path: Any, **options: Any) -> Any:
    """Loads an estimator that `save` wrote. `options` are those of `natgrad.gp.load`.

    Unlike a pickle, a file runs no code, so you can load files from untrusted sources.

    Raises:
        CorruptFileError: If the file is damaged or not what it claims to be.
        IncompatibleFileError: If this version or setup of natgrad cannot use it.

    >>> regressor.save("model.natgrad")
    >>> loaded = natgrad.sklearn.load("model.natgrad")
    >>> bool((loaded.predict(x) == regressor.predict(x)).all())
    True
    """
    return files.read(path, KINDS, **options)


class Served:
    """What `mlflow.pyfunc` calls: a frame in, a frame out."""

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> Any:
        """The mean and standard deviation, or the class and all probabilities."""
        import pandas

        if hasattr(self.estimator, "predict_proba"):
            proba = self.estimator.predict_proba(frame)
            classes = self.estimator.classes_
            table: dict[str, np.ndarray] = {"class": classes[proba.argmax(1)]}
            table |= {f"p({name})": p for name, p in zip(classes, proba.T, strict=True)}
        else:
            mean, std = self.estimator.predict(frame, return_std=True)
            table = {"mean": mean, "std": std}
        return pandas.DataFrame(table, index=getattr(frame, "index", None))


def _load_pyfunc(path: str) -> Served:
    return Served(load(path))
