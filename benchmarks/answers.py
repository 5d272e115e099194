"""What a method of the tables answers: probabilities of classes, or densities."""

from collections.abc import Callable
from typing import Any

import numpy as np


Answer = dict[str, Any]
CLASSES = ("binary", "classes", "ordinal")


def of_distribution(distribution: Any, y: np.ndarray) -> Answer:
    """Of a frozen distribution of SciPy, over numbers or over counts."""
    is_count = not hasattr(distribution.dist, "pdf")
    log_density = distribution.logpmf(y) if is_count else distribution.logpdf(y)
    return {
        "log_density": log_density,
        "mean": distribution.mean(),
        "cdf": distribution.cdf(y),
        "cdf_below": distribution.cdf(y - 1 if is_count else y),
    }


def of_rounded(cdf: Callable[[Any], Any], mean: Any, y: np.ndarray) -> Answer:
    """Of a distribution over numbers that is rounded to the nearest count."""
    below = np.where(y > 0, cdf(y - 0.5), 0.0)
    above = cdf(y + 0.5)
    log_density = np.log(np.maximum(above - below, 1e-300))
    return {"log_density": log_density, "mean": mean, "cdf": above, "cdf_below": below}


def of_classifier(classifier: Any, data: Any) -> Answer:
    given = classifier.predict_proba(data["x_test"])
    probabilities = np.zeros([len(given), num_classes(data)], given.dtype)
    probabilities[:, np.asarray(classifier.classes_, int)] = given
    return {"probabilities": probabilities}


def num_classes(data: Any) -> int:
    return int(max(data["y"].max(), data["y_test"].max())) + 1


class Scaled:
    """Inputs, and targets that are real, to mean 0 and deviation 1."""

    def __init__(self, data: Any, kind: str):
        scale = lambda v: np.where(v.std(0) > 0, v.std(0), 1.0)
        self.y_mean, self.y_scale = 0.0, 1.0
        if kind in ("real", "robust"):
            self.y_mean, self.y_scale = data["y"].mean(), scale(data["y"])
        x_mean, x_scale = data["x"].mean(0), scale(data["x"])
        self.x = (data["x"] - x_mean) / x_scale
        self.x_test = (data["x_test"] - x_mean) / x_scale
        self.y = (data["y"] - self.y_mean) / self.y_scale
        self.y_test = (data["y_test"] - self.y_mean) / self.y_scale

    def undo(self, answer: Answer) -> Answer:
        """Back to the user's units."""
        answer["log_density"] = answer["log_density"] - np.log(self.y_scale)
        answer["mean"] = answer["mean"] * self.y_scale + self.y_mean
        return answer
