"""What compare.py compares with: each peer as its documentation has it.

An entry takes the data, what kind of target it is, a seed and a budget in seconds of
the processor, and returns what it predicts for the test rows: probabilities of classes;
or log densities, means, and the distribution function at and just below the targets.
"""
# pyright: reportMissingImports=false

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


Answer = dict[str, Any]
CLASSES = ("binary", "classes", "ordinal")


def entry(name: str) -> Callable[..., Answer]:
    """The function of a peer, whose packages are imported now."""
    function, *packages = {
        "linear": (linear, "sklearn.linear_model"),
        "boosting": (boosting, "sklearn.ensemble"),
        "exact-gp": (exact_gp, "sklearn.gaussian_process"),
        "ngboost": (ngboost, "ngboost"),
        "gpytorch": ("gpytorch", "gpytorch"),
        "gpflow": ("gpflow", "gpflow", "tf_keras"),
    }[name]
    warnings.simplefilter("ignore")
    for package in packages:
        importlib.import_module(package)
    if isinstance(function, str):
        return getattr(importlib.import_module("compare_sparse"), function)
    return function


# What an answer is made of


def of_gaussian(mean: Any, deviation: Any, y: np.ndarray) -> Answer:
    from scipy.stats import norm

    cdf = norm.cdf(y, mean, deviation)
    log_density = norm.logpdf(y, mean, deviation)
    return {"log_density": log_density, "mean": mean, "cdf": cdf, "cdf_below": cdf}


def of_counts(distribution: Any, y: np.ndarray) -> Answer:
    return {
        "log_density": distribution.logpmf(y),
        "mean": distribution.mean(),
        "cdf": distribution.cdf(y),
        "cdf_below": distribution.cdf(y - 1),
    }


def of_samples(samples: Any, log_density: Any, mean: Any, y: np.ndarray) -> Answer:
    """Of samples [S, N], for distributions whose function is not at hand."""
    return {
        "log_density": log_density,
        "mean": mean,
        "cdf": (samples <= y).mean(0),
        "cdf_below": (samples < y).mean(0),
    }


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


# scikit-learn


def with_residuals(make: Callable[[], Any], data: Any, seed: int) -> Answer:
    """A point prediction as a Gaussian.

    Its deviation is that of the residuals on a tenth of the training rows, which a
    first fit did not see; the second fit sees all.
    """
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    held_out, rest = np.split(order, [len(order) // 10])
    first = make().fit(data["x"][rest], data["y"][rest])
    residuals = data["y"][held_out] - first.predict(data["x"][held_out])
    deviation = np.sqrt(np.mean(residuals**2))
    mean = make().fit(data["x"], data["y"]).predict(data["x_test"])
    answer = of_gaussian(mean, deviation, data["y_test"])
    return answer | {"note": f"residual deviation {deviation:.4g}"}


def with_poisson(model: Any, data: Any) -> Answer:
    from scipy.stats import poisson

    mean = model.fit(data["x"], data["y"]).predict(data["x_test"])
    return of_counts(poisson(mean), data["y_test"]) | {"note": "Poisson"}


def linear(data: Any, kind: str, seed: int, _: float) -> Answer:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind in CLASSES:
        model = make_pipeline(StandardScaler(), LogisticRegression())
        model.fit(data["x"], data["y"])
        return of_classifier(model, data) | {"note": "LogisticRegression"}
    if kind == "count":
        model = make_pipeline(StandardScaler(), PoissonRegressor())
        return with_poisson(model, data)
    make = lambda: make_pipeline(StandardScaler(), RidgeCV())
    return with_residuals(make, data, seed)


def boosting(data: Any, kind: str, seed: int, _: float) -> Answer:
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    if kind in CLASSES:
        model = HistGradientBoostingClassifier(random_state=seed)
        model.fit(data["x"], data["y"])
        return of_classifier(model, data) | {"note": f"{model.n_iter_} iterations"}
    if kind == "count":
        model = HistGradientBoostingRegressor(loss="poisson", random_state=seed)
        return with_poisson(model, data)
    make = lambda: HistGradientBoostingRegressor(random_state=seed)
    return with_residuals(make, data, seed)


def exact_gp(data: Any, kind: str, seed: int, _: float) -> Answer:
    from sklearn.gaussian_process import (
        GaussianProcessClassifier,
        GaussianProcessRegressor,
    )
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    scaled = Scaled(data, "unscaled")
    kernel = ConstantKernel() * Matern([1.0] * scaled.x.shape[1], nu=2.5)  # pyright: ignore
    if kind in CLASSES:
        model = GaussianProcessClassifier(kernel, random_state=seed)
        model.fit(scaled.x, data["y"])
        return of_classifier(model, data | {"x_test": scaled.x_test}) | {"note": ""}
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(), normalize_y=True, random_state=seed
    )
    model.fit(scaled.x, data["y"])
    mean, deviation = model.predict(scaled.x_test, return_std=True)
    return of_gaussian(mean, deviation, data["y_test"]) | {"note": ""}


# NGBoost


def ngboost(data: Any, kind: str, seed: int, _: float) -> Answer:
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import Normal, Poisson, k_categorical
    from ngboost.distns.t import TFixedDf

    options = {"random_state": np.random.RandomState(seed), "verbose": False}
    if kind in CLASSES:
        count = num_classes(data)
        model = NGBClassifier(Dist=k_categorical(count), **options)
        model.fit(data["x"], data["y"])
        model.classes_ = np.arange(count)
        return of_classifier(model, data) | {"note": f"{count} classes"}
    family = {"real": Normal, "robust": TFixedDf, "count": Poisson}[kind]
    model = NGBRegressor(Dist=family, **options).fit(data["x"], data["y"])
    predicted = model.pred_dist(data["x_test"])
    said = {"note": family.__name__}
    if kind == "count":
        return of_counts(predicted.dist, data["y_test"]) | said
    cdf = predicted.dist.cdf(data["y_test"])
    return said | {
        "log_density": predicted.dist.logpdf(data["y_test"]),
        "mean": predicted.dist.mean(),
        "cdf": cdf,
        "cdf_below": cdf,
    }
