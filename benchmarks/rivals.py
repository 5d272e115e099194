"""What natgrad is compared with on tables, each set up as a careful user would.

An entry takes the data, what kind of target it is, a seed and a budget in seconds of
the processor, and returns what it predicts for the test rows: probabilities of classes;
or log densities, means, and the distribution function at and just below the targets.

Methods that predict points get a noise model, chosen on a tenth of the training rows
which their first fit does not see: Gaussian or Student-t (negative binomial for
counts), of one scale for all rows or of a scale that a second model predicts.
"""
# pyright: reportMissingImports=false

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from answers import (
    CLASSES,
    Answer,
    Scaled,
    num_classes,
    of_classifier,
    of_distribution,
    of_rounded,
)


LARGE = 50_000
"""Rows from which a classifier is not fitted a second time, on all rows."""


def entry(name: str) -> Callable[..., Answer]:
    """The function of a rival, whose packages are imported now."""
    packages = {
        "linear": ["sklearn.linear_model"],
        "boosting": ["sklearn.ensemble"],
        "lightgbm": ["lightgbm"],
        "exact-gp": ["sklearn.gaussian_process"],
        "ngboost": ["ngboost"],
        "gpytorch": ["gpytorch"],
        "gpflow": ["gpflow", "tf_keras"],
        "gpjax": ["gpjax"],
    }[name]
    warnings.simplefilter("ignore")
    for package in packages:
        importlib.import_module(package)
    if name.startswith("gp"):
        return getattr(importlib.import_module("sparse_rivals"), name)
    return globals()[name.replace("-", "_")]


# A noise model around predicted points


FOLDS = 3
"""Whose residuals the second model learns the scale from."""

Make = Callable[[str], Any]
"""Makes an unfitted model of the mean ("mean") or of the log residual ("scale")."""


def halves(data: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A tenth of the training rows, and the rest."""
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    held_out, rest = np.split(order, [len(order) // 10])
    return held_out, rest


def with_noise(make: Make, data: Any, kind: str, seed: int) -> Answer:
    """Points of a model, with the noise that is best on a held-out tenth."""
    x, y = data["x"], data["y"]
    held_out, rest = halves(data, seed)
    mean = make("mean").fit(x[rest], y[rest]).predict(x[held_out])
    scale_model = model_of_scale(make, x[rest], y[rest], seed)
    scales = {
        "one scale": np.full(len(held_out), np.std(y[held_out] - mean)),
        "modelled scale": np.exp(scale_model.predict(x[held_out])),
    }
    best: tuple[float, str, Any, Any] = (-np.inf, "", None, None)
    for which, scale in scales.items():
        for family, start in FAMILIES["count" if kind == "count" else "real"].items():
            found, value = fitted(family, start, mean, scale, y[held_out])
            if value > best[0]:
                best = (value, which, family, found)
    _, which, family, found = best
    mean = make("mean").fit(x, y).predict(data["x_test"])
    if which == "one scale":
        scale = np.full(len(mean), scales[which][0])
    else:
        scale_model = model_of_scale(make, x, y, seed)
        scale = np.exp(scale_model.predict(data["x_test"]))
    distribution = family(found, mean, scale)
    note = f"{family.__name__}, {which}, {np.round(found, 3).tolist()}"
    answer = of_distribution(distribution, data["y_test"])
    return answer | {"mean": mean, "note": note}


def model_of_scale(make: Make, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Learns the logarithm of the residuals that models of other folds leave."""
    fold = np.random.default_rng(seed + 1).permutation(len(y)) % FOLDS
    residual = np.empty(len(y))
    for i in range(FOLDS):
        model = make("mean").fit(x[fold != i], y[fold != i])
        residual[fold == i] = y[fold == i] - model.predict(x[fold == i])
    size = np.maximum(np.abs(residual), 1e-3 * np.std(residual))
    return make("scale").fit(x, np.log(size))


def gaussian(parameters: Any, mean: Any, scale: Any) -> Any:
    from scipy.stats import norm

    return norm(mean, np.exp(parameters[0]) * scale)


def student_t(parameters: Any, mean: Any, scale: Any) -> Any:
    from scipy.stats import t

    return t(1 + np.exp(parameters[1]), mean, np.exp(parameters[0]) * scale)


def negative_binomial(parameters: Any, mean: Any, scale: Any) -> Any:
    """With the variance μ + c² s², of a mean μ and a predicted scale s."""
    from scipy.stats import nbinom

    mean = np.maximum(mean, 1e-3)
    excess = np.maximum((np.exp(parameters[0]) * scale) ** 2, 1e-6 * mean)
    size = mean**2 / excess
    return nbinom(size, size / (size + mean))


def dispersed(parameters: Any, mean: Any, scale: Any) -> Any:
    """With the variance μ + μ²/r, as a regression by negative binomials has."""
    from scipy.stats import nbinom

    mean, size = np.maximum(mean, 1e-3), np.exp(parameters[0])
    return nbinom(size, size / (size + mean))


def poisson(parameters: Any, mean: Any, scale: Any) -> Any:
    from scipy.stats import poisson as family

    return family(np.maximum(mean, 1e-3))


FAMILIES: dict[str, dict[Callable[..., Any], list[float]]] = {
    "real": {gaussian: [0.0], student_t: [-0.3, 1.5]},
    "count": {poisson: [], dispersed: [1.0], negative_binomial: [0.0]},
}


def fitted(
    family: Callable[..., Any], start: list[float], mean: Any, scale: Any, y: Any
) -> tuple[np.ndarray, float]:
    """The parameters of greatest likelihood, and their mean log density."""
    from scipy.optimize import minimize

    def loss(parameters: Any) -> float:
        distribution = family(np.clip(parameters, -10, 10), mean, scale)
        value = -np.mean(of_distribution(distribution, y)["log_density"])
        return float(value) if np.isfinite(value) else 1e10

    if not start:
        return np.array([]), -loss(np.array([]))
    found = minimize(loss, np.array(start), method="Nelder-Mead")
    return np.clip(found.x, -10, 10), -float(found.fun)


# Linear models


def linear(data: Any, kind: str, seed: int, _: float) -> Answer:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind in CLASSES:
        # Iterations enough for every set but mnist, where it stops by itself later.
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        model.fit(data["x"], data["y"])
        return of_classifier(model, data) | {"note": "LogisticRegression"}

    def make(what: str) -> Any:
        if what == "mean" and kind == "count":
            return make_pipeline(StandardScaler(), PoissonRegressor(max_iter=1000))
        return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))

    return with_noise(make, data, kind, seed)


# Boosted trees


MOST_TREES = 500
"""Of HistGradientBoosting; LightGBM learns half as fast and may have twice as many."""


def stages(model: Any, x: np.ndarray) -> Iterator[np.ndarray]:
    """The predictions after each iteration."""
    staged = getattr(model, "staged_predict_proba", None) or model.staged_predict
    return staged(x)


def best_of(losses: list[float]) -> int:
    return int(np.argmin(losses)) + 1


def point_loss(kind: str, y: np.ndarray, predicted: np.ndarray) -> float:
    if kind == "count":
        return float(np.mean(predicted - y * np.log(np.maximum(predicted, 1e-6))))
    return float(np.mean((y - predicted) ** 2))


def boosting(data: Any, kind: str, seed: int, _: float) -> Answer:
    """HistGradientBoosting, with as many iterations as a held-out tenth wants."""
    from sklearn.ensemble import (
        HistGradientBoostingClassifier as Classifier,
        HistGradientBoostingRegressor as Regressor,
    )

    x, y = data["x"], data["y"]
    held_out, rest = halves(data, seed)
    options: dict[str, Any] = {"random_state": seed, "early_stopping": False}
    if kind in CLASSES and len(y) >= LARGE:
        model = Classifier(random_state=seed).fit(x, y)  # stops early by itself
        return of_classifier(model, data) | {"note": f"{model.n_iter_} iterations"}
    if kind in CLASSES:
        model = Classifier(max_iter=MOST_TREES, **options).fit(x[rest], y[rest])
        known = held_out[np.isin(y[held_out], model.classes_)]
        place = np.searchsorted(model.classes_, y[known])
        given = lambda p: np.maximum(p[np.arange(len(known)), place], 1e-15)
        losses = [float(-np.log(given(p)).mean()) for p in stages(model, x[known])]
        count = best_of(losses)
        model = Classifier(max_iter=count, **options).fit(x, y)
        return of_classifier(model, data) | {"note": f"{count} iterations"}
    options["loss"] = "poisson" if kind == "count" else "squared_error"
    model = Regressor(max_iter=MOST_TREES, **options).fit(x[rest], y[rest])
    losses = [point_loss(kind, y[held_out], p) for p in stages(model, x[held_out])]
    count = best_of(losses)

    def make(what: str) -> Any:
        if what == "mean":
            return Regressor(max_iter=count, **options)
        return Regressor(random_state=seed, early_stopping=True, max_iter=MOST_TREES)

    answer = with_noise(make, data, kind, seed)
    return answer | {"note": f"{answer['note']}, {count} iterations"}


def lightgbm(data: Any, kind: str, seed: int, budget: float) -> Answer:
    """Early stopping on a held-out tenth, then the same number of trees on all rows."""
    import time

    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping
    from lightgbm.callback import EarlyStopException

    x, y = data["x"], data["y"]
    held_out, rest = halves(data, seed)
    options: dict[str, Any] = {
        "n_jobs": 1,
        "learning_rate": 0.05,
        "random_state": seed,
        "verbose": -1,
    }

    def in_time(env: Any) -> None:
        if time.process_time() > budget:
            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    in_time.order = 40  # pyright: ignore
    stopping = [early_stopping(50, verbose=False), in_time]

    def first(model: Any, rest: np.ndarray, held_out: np.ndarray) -> Any:
        held = [(x[held_out], y[held_out])]
        return model.fit(x[rest], y[rest], eval_set=held, callbacks=stopping)

    if kind in CLASSES:
        held_out = held_out[np.isin(y[held_out], np.unique(y[rest]))]
        model = first(LGBMClassifier(n_estimators=1000, **options), rest, held_out)
        count = model.best_iteration_
        if len(y) < LARGE:
            model = LGBMClassifier(n_estimators=count, **options).fit(x, y)
        return of_classifier(model, data) | {"note": f"{count} trees"}
    loss = {"objective": "poisson"} if kind == "count" else {}
    model = LGBMRegressor(n_estimators=2 * MOST_TREES, **options, **loss)
    count = first(model, rest, held_out).best_iteration_

    def make(what: str) -> Any:
        if what == "mean":
            return LGBMRegressor(n_estimators=count, **options, **loss)
        # The logarithm of a residual is mostly noise: fewer and smaller trees.
        return LGBMRegressor(n_estimators=100, num_leaves=15, **options)

    answer = with_noise(make, data, kind, seed)
    return answer | {"note": f"{answer['note']}, {count} trees"}


# NGBoost


def ngboost(data: Any, kind: str, seed: int, _: float) -> Answer:
    """Family and number of stages from a held-out tenth, then all rows.

    A tree of a large table sees 20,000 of its rows.
    """
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import LogNormal, Normal, Poisson, k_categorical
    from ngboost.distns.t import TFixedDf

    x, y = data["x"], data["y"]
    held_out, rest = halves(data, seed)
    options: dict[str, Any] = {
        "verbose": False,
        "minibatch_frac": min(1.0, 20_000 / len(y)),
        "n_estimators": 500,
        "learning_rate": 0.05,
    }
    random = lambda: np.random.RandomState(seed)
    early = {"early_stopping_rounds": 20}
    if kind in CLASSES:
        count = num_classes(data)
        make = lambda **o: NGBClassifier(
            Dist=k_categorical(count), random_state=random(), **(options | o)
        )
        x_held, y_held = x[held_out], y[held_out]
        model = make().fit(x[rest], y[rest], x_held, y_held, **early)
        best = max(int(model.best_val_loss_itr or 0), 10) + 1
        model = make(n_estimators=best).fit(x, y)
        model.classes_ = np.arange(count)
        return of_classifier(model, data) | {"note": f"{best} stages"}
    shift = 1.0 if kind == "count" else 0.0
    families = [Normal, LogNormal, Poisson] if kind == "count" else [Normal, TFixedDf]
    scored: list[tuple[float, Any, int]] = []
    for family in families:
        moved = y + (shift if family is LogNormal else 0.0)
        make = lambda family=family, **o: NGBRegressor(
            Dist=family, random_state=random(), **(options | o)
        )
        model = make()
        model.fit(x[rest], moved[rest], x[held_out], moved[held_out], **early)
        best = max(int(model.best_val_loss_itr or 0), 10) + 1
        answer = of_ngboost(model, family, x[held_out], y[held_out], kind, best)
        scored.append((float(answer["log_density"].mean()), family, best))
    _, family, best = max(scored, key=lambda one: one[0])
    model = NGBRegressor(
        Dist=family, random_state=random(), **(options | {"n_estimators": best})
    ).fit(x, y + (shift if family is LogNormal else 0.0))
    answer = of_ngboost(model, family, data["x_test"], data["y_test"], kind, None)
    return answer | {"note": f"{family.__name__}, {best} stages"}


def of_ngboost(
    model: Any, family: Any, x: np.ndarray, y: np.ndarray, kind: str, stage: Any
) -> Answer:
    predicted = model.pred_dist(x, max_iter=stage).dist
    if kind != "count" or family.__name__ == "Poisson":
        return of_distribution(predicted, y)
    # NGBoost has no negative binomial: what it has, rounded to counts.
    shift = 1.0 if family.__name__ == "LogNormal" else 0.0
    cdf = lambda y: predicted.cdf(np.maximum(y + shift, 1e-6 if shift else -np.inf))
    return of_rounded(cdf, predicted.mean() - shift, y)


# scikit-learn's exact Gaussian processes


def exact_gp(data: Any, kind: str, seed: int, _: float) -> Answer:
    from sklearn.gaussian_process import (
        GaussianProcessClassifier,
        GaussianProcessRegressor,
    )
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    scaled = Scaled(data, "unscaled")
    width = scaled.x.shape[1]
    kernel = ConstantKernel() * Matern([1.0] * width, nu=2.5)  # pyright: ignore
    if kind in CLASSES:
        model = GaussianProcessClassifier(kernel, random_state=seed)
        model.fit(scaled.x, data["y"])
        return of_classifier(model, data | {"x_test": scaled.x_test}) | {"note": ""}
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(), normalize_y=True, random_state=seed
    )
    model.fit(scaled.x, data["y"])
    mean, deviation = model.predict(scaled.x_test, return_std=True)
    from scipy.stats import norm

    return of_distribution(norm(mean, deviation), data["y_test"]) | {"note": ""}
