"""A saved estimator as a model of MLflow: `mlflow.pyfunc` loads it by this module."""

from typing import Any

import numpy as np

from natgrad.sklearn._loading import load


class Served:
    """What `mlflow.pyfunc` calls: a frame in, a frame out."""

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def predict(self, frame: Any, params: dict[str, Any] | None = None) -> Any:
        """The mean and the deviation, or the class and the probability of each."""
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
