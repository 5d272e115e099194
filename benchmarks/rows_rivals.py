"""What the engine is compared with on rows, each set up as a careful user would.

An entry takes what `rows_data.load` returns and whether it may use the groups, and
answers as `rows_scores` says. All choices are made on training rows.
"""
# pyright: reportMissingImports=false

import time
import warnings
from typing import Any

import numpy as np
from codes import FOLDS, folds
from rows_scores import LEVELS, Warp, answer_of, clipped, mass, warps
from scipy import optimize, stats


CLASSES = ("binary", "classes")
TO_CHOOSE = 5000
"""Training rows on which the warp is chosen."""

GAUSSIAN = 5.0
"""The log of the degrees of freedom from which a Student-t is a Gaussian."""

warnings.simplefilter("ignore")


def some(number: int, most: int, seed: int = 1) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(number)[:most])


def of_classes(predict: Any, data: Any, note: str) -> dict[str, Any]:
    """Of a function that gives probabilities of the classes in the training rows."""
    began = time.process_time()
    given = predict(data["x_test"])
    spent = time.process_time() - began
    width = int(max(data["y"].max(), data["y_test"].max())) + 1
    probabilities = np.zeros([len(given), width])
    probabilities[:, np.unique(data["y"]).astype(int)] = given
    return {"probabilities": probabilities, "note": note, "predict_cpu": spent}


# Noise around predicted points


def noise(parameters: Any, mean: Any, size: Any) -> Any:
    """Student-t around a mean, with a share of a predicted log size in its scale."""
    level, share, extra = parameters
    scale = np.exp(np.clip(level + share * size, -30, 30))
    if extra >= GAUSSIAN:
        return stats.norm(mean, scale)
    return stats.t(1 + np.exp(max(extra, -3)), mean, scale)


def fitted_noise(mean: Any, size: Any, warp: Warp, y: Any, data: Any) -> Any:
    """The parameters of greatest likelihood, from several starts, and its mean."""
    chosen = some(len(y), 10_000 if data["resolution"] is None else 4000)
    mean, size, y = mean[chosen], size[chosen], y[chosen]
    residual = np.std(warp.forward(y) - mean)
    has_size = np.ptp(size) > 0

    def loss(free: Any, extra: float | None = None) -> float:
        found = mass(noise(complete(free, extra), mean, size), warp, y, data)
        value = -np.mean(found["log_density"])
        return float(value) if np.isfinite(value) else 1e10

    def complete(free: Any, extra: float | None) -> tuple[float, float, float]:
        share = free[1] if has_size else 0.0
        return float(free[0]), float(share), float(free[-1] if extra is None else extra)

    base = np.log(residual) - (np.mean(size) if has_size else 0.0)
    start = [base, 1.0] if has_size else [base]
    ends = []
    for extra in (*np.log([1.0, 4.0, 30.0]), None):  # None is the Gaussian
        free, fixed = (start, GAUSSIAN) if extra is None else ([*start, extra], None)
        options = {"maxfev": 400, "xatol": 1e-3, "fatol": 1e-5}
        end = optimize.minimize(
            loss, free, args=(fixed,), method="Nelder-Mead", options=options
        )
        ends.append((float(end.fun), complete(end.x, fixed)))
    least, parameters = min(ends)
    return parameters, -least


# LightGBM


OPTIONS = {"learning_rate": 0.05, "num_threads": 1, "verbose": -1, "seed": 0}
MOST_TREES = 1500
MEAN, SIZE = {"num_leaves": 31}, {"num_leaves": 15, "min_data_in_leaf": 50}


def crossed(x: Any, target: Any, fold: Any, options: Any) -> tuple[np.ndarray, int]:
    """Predictions of models of the other folds, and how many trees these want."""
    import lightgbm

    models = []
    for i in range(FOLDS):
        train = lightgbm.Dataset(x[fold != i], target[fold != i])
        held = train.create_valid(x[fold == i], target[fold == i])
        stop = lightgbm.early_stopping(50, verbose=False)
        options = OPTIONS | options
        model = lightgbm.train(options, train, MOST_TREES, [held], callbacks=[stop])
        models.append(model)
    trees = max(round(np.mean([model.best_iteration for model in models])), 1)
    shape = (
        [len(target), options["num_class"]] if "num_class" in options else len(target)
    )
    left_out = np.empty(shape)
    for i, model in enumerate(models):
        left_out[fold == i] = model.predict(x[fold == i], num_iteration=trees)
    return left_out, trees


def boosted(x: Any, target: Any, options: Any, trees: int) -> Any:
    import lightgbm

    return lightgbm.train(OPTIONS | options, lightgbm.Dataset(x, target), trees)


def chosen_warp(data: Any, groups: Any) -> Warp:
    """The warp whose left-out rows have the greatest density, by boosted trees."""
    few = some(len(data["y"]), TO_CHOOSE)
    fold = folds(len(few), None if groups is None else groups[few])
    best: Any = None
    for warp in warps(data):
        left_out, _ = crossed(data["x"][few], warp.forward(data["y"][few]), fold, MEAN)
        flat = np.zeros(len(few))
        value = fitted_noise(left_out, flat, warp, data["y"][few], data)[1]
        best = max(best or (-np.inf, warp), (value, warp), key=lambda one: one[0])
    return best[1]


def lightgbm(data: Any, use_groups: bool) -> dict[str, Any]:
    """Trees by early stopping in five folds; for numbers, noise of left-out rows."""
    groups = data["groups"] if use_groups else None
    x, y, fold = data["x"], data["y"], folds(len(data["y"]), groups)
    if data["kind"] in CLASSES:
        y = np.unique(y, return_inverse=True)[1]
        options = {"objective": "binary"} | MEAN
        if y.max() > 1:
            options |= {"objective": "multiclass", "num_class": int(y.max()) + 1}
        trees = crossed(x, y, fold, options)[1]
        model = boosted(x, y, options, trees)

        def predict(x: np.ndarray) -> np.ndarray:
            given = model.predict(x)
            return np.stack([1 - given, given], 1) if given.ndim == 1 else given

        return of_classes(predict, data, f"{trees} trees")
    warp = chosen_warp(data, groups)
    target = warp.forward(y)
    left_out, trees = crossed(x, target, fold, MEAN)
    residual = np.abs(target - left_out)
    log_size = np.log(residual + 0.05 * residual.std())
    size, size_trees = crossed(x, log_size, fold, SIZE)
    found, _ = fitted_noise(left_out, size, warp, y, data)
    model = boosted(x, target, MEAN, trees)
    size_model = boosted(x, log_size, SIZE, size_trees)
    began = time.process_time()
    x = data["x_test"]
    answer = answer_of(
        noise(found, model.predict(x), size_model.predict(x)), warp, data
    )
    spent = time.process_time() - began
    note = f"{warp.name}, {trees} + {size_trees} trees, {np.round(found, 2).tolist()}"
    return answer | {"note": note.replace(",", ";"), "predict_cpu": spent}


# Linear


def linear(data: Any, use_groups: bool) -> dict[str, Any]:
    """Ridge regression, with noise of left-out rows, or logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    groups = data["groups"] if use_groups else None
    x, y, fold = data["x"], data["y"], folds(len(data["y"]), groups)
    if data["kind"] in CLASSES:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        return of_classes(model.fit(x, y).predict_proba, data, "")
    best: Any = None
    for warp in warps(data):
        make = lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
        target, left_out = warp.forward(y), np.empty(len(y))
        for i in range(FOLDS):
            model = make().fit(x[fold != i], target[fold != i])
            left_out[fold == i] = model.predict(x[fold == i])
        flat = np.zeros(len(y))
        found, value = fitted_noise(left_out, flat, warp, y, data)
        if best is None or value > best[0]:
            best = value, warp, found, make().fit(x, target)
    _, warp, found, model = best
    answer = answer_of(noise(found, model.predict(data["x_test"]), 0.0), warp, data)
    return answer | {"note": warp.name}


# Gaussian processes


def standardised(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs to mean 0 and deviation 1, without those that are nearly constant."""
    x = data["x"]
    is_live = np.ptp(np.percentile(x, [2, 98], axis=0), axis=0) > 0
    x, x_test = x[:, is_live], data["x_test"][:, is_live]
    return (x - x.mean(0)) / x.std(0), (x_test - x.mean(0)) / x.std(0)


def exact_gp(data: Any, use_groups: bool) -> dict[str, Any]:
    """scikit-learn's, with one lengthscale an input."""
    from sklearn.gaussian_process import (
        GaussianProcessClassifier,
        GaussianProcessRegressor,
    )
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    x, x_test = standardised(data)
    kernel: Any = ConstantKernel() * Matern([1.0] * x.shape[1], nu=2.5)
    if data["kind"] in CLASSES:
        model = GaussianProcessClassifier(kernel, random_state=0).fit(x, data["y"])
        return of_classes(model.predict_proba, data | {"x_test": x_test}, "")
    warp = chosen_warp(data, data["groups"] if use_groups else None)
    model = GaussianProcessRegressor(kernel + WhiteKernel(), random_state=0)
    model.fit(x, warp.forward(data["y"]))
    began = time.process_time()
    distribution = stats.norm(*model.predict(x_test, return_std=True))
    answer = answer_of(distribution, warp, data)
    spent = time.process_time() - began
    return answer | {"note": warp.name, "predict_cpu": spent}


def gpboost(
    data: Any, use_groups: bool, approximation: str = "vecchia"
) -> dict[str, Any]:
    """GPBoost's, with a Student-t on 1,000 training rows that its fit has not seen."""
    import gpboost as package

    x, x_test = standardised(data)
    warp = chosen_warp(data, data["groups"] if use_groups else None)
    target, number = warp.forward(data["y"]), len(data["y"])
    held = some(number, min(1000, number // 5), 1)
    rest = np.setdiff1d(np.arange(number), held)
    few = rest[some(len(rest), 12_000, 2)]
    options = {
        "cov_function": "matern_ard",
        "cov_fct_shape": 1.5,
        "gp_approx": approximation,
        "num_neighbors": 20,
        "num_parallel_threads": 1,
        "seed": 0,
    }
    model = package.GPModel(gp_coords=x[few], likelihood="gaussian", **options)
    model.fit(y=target[few], params={"maxit": 50})
    parameters = np.asarray(model.get_cov_pars()).ravel()[: 2 + x.shape[1]]

    def predict(rows: Any, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = package.GPModel(gp_coords=x[rows], likelihood="gaussian", **options)
        found = model.predict(
            y=target[rows], gp_coords_pred=at, predict_var=True, cov_pars=parameters
        )
        return found["mu"], np.log(np.sqrt(np.maximum(found["var"], 1e-12)))

    found, _ = fitted_noise(*predict(rest, x[held]), warp, data["y"][held], data)
    began = time.process_time()
    mean, log_deviation = predict(np.arange(number), x_test)
    answer = answer_of(noise(found, mean, log_deviation), warp, data)
    spent = time.process_time() - began
    note = f"{warp.name}; {np.round(found, 2).tolist()}".replace(",", ";")
    return answer | {"note": note, "predict_cpu": spent}


def gpboost_vif(data: Any, use_groups: bool) -> dict[str, Any]:
    return gpboost(data, use_groups, "full_scale_vecchia")


# natgrad before the engine


def natgrad(data: Any, use_groups: bool) -> dict[str, Any]:
    """The estimator of the kind, with nothing set but the likelihood of counts."""
    from natgrad import sklearn as estimators

    x, y, x_test, y_test = (data[key] for key in ("x", "y", "x_test", "y_test"))
    options: dict[str, Any] = {"random_state": 0, "verbose": False}
    if data["kind"] in CLASSES:
        model: Any = estimators.GPClassifier(**options).fit(x, y.astype(int))
        return of_classes(model.predict_proba, data, f"M {model.n_inducing_}")
    is_count, step = data["kind"] == "count", data["resolution"]
    likelihood = "negative-binomial" if is_count else "auto"
    model = estimators.GPRegressor(likelihood=likelihood, **options).fit(x, y)
    began = time.process_time()
    quantiles = clipped(model.predict(x_test, quantiles=LEVELS), data)
    reach = 0.0 if is_count else (step or 0.0) / 2
    above = model.cdf(x_test, y_test + reach)
    below = model.cdf(x_test, y_test - (1 if is_count else reach))
    log_density = model.log_density(x_test, y_test)
    if step and not is_count:
        log_density = np.log(np.maximum(above - below, 1e-300) / step)
    answer = {"log_density": log_density, "cdf_above": above, "cdf_below": below}
    answer |= {"mean": model.predict(x_test), "quantiles": quantiles}
    spent = time.process_time() - began
    kind = type(model.model_.likelihood).__name__
    note = f"{kind}; M {model.n_inducing_}; {model.n_iter_} steps"
    return answer | {"note": note, "predict_cpu": spent}
