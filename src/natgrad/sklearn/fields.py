"""What each field of an estimator file may be, checked before any of it is used.

A rule has a test of a JSON value and the words for what it should be. A new parameter
or attribute needs a line in a table below: a field without one is refused by its name.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import gp
from natgrad.envelope import shown
from natgrad.errors import IncompatibleFileError, InputError
from natgrad.gp import likelihoods
from natgrad.sklearn.beginnings import KERNELS
from natgrad.sklearn.targets import NOISES
from natgrad.train.history import Record


MAX_TEXT = 1000
"""How many characters a message may have."""

MAX_LABELS = 2**20
"""How many characters an array of labels may have, each as long as the longest."""

LARGEST = 1e300
"""Units are at most this, so that a prediction in them is still finite."""


class Rule(NamedTuple):
    """Whether a JSON value may be in a field, and what it should be in words."""

    accepts: Callable[[Any], bool]
    wanted: str
    is_required: bool = True


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_scale(value: Any) -> bool:
    return _is_number(value) and 1 / LARGEST <= value <= LARGEST


def _is_centre(value: Any) -> bool:
    return _is_number(value) and abs(value) <= LARGEST


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _or_none(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or of(value)


def _is_labels(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"dtype", "values"}


_LIMIT = Rule(
    # True is a whole number to Python, and `fit` takes it.
    lambda value: value == "auto" or (isinstance(value, int) and value > 0),
    "a whole number above 0 or 'auto'",
)
_NAME = Rule(_or_none(_is_text), "a name, or null for an object")
_CENTRE = Rule(_is_centre, f"a number of at most {LARGEST:g}")
_SCALE = Rule(_is_scale, f"a number from {1 / LARGEST:g} to {LARGEST:g}")
_COUNT = Rule(_is_whole, "a whole number, 0 or more")
_SPAN = Rule(lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
_REAL = Rule(_or_none(_is_number), "a number or null")
_TEXT = Rule(_is_text, f"a text of at most {MAX_TEXT} characters")
_LABELS = Rule(_is_labels, "an object of dtype and values", is_required=False)

PARAMS = {
    "likelihood": _NAME,
    "kernel": _NAME,
    "n_inducing": _LIMIT,
    "max_iter": _LIMIT,
    "batch_size": _LIMIT,
    "minutes": Rule(
        _or_none(lambda value: _is_number(value) and value > 0),
        "a number above 0 or null",
    ),
    "random_state": Rule(
        _or_none(lambda value: _is_whole(value) and value < 2**32),
        "a whole number below 2**32 or null",
    ),
    "verbose": Rule(
        _or_none(lambda value: isinstance(value, int)), "true, false or a whole number"
    ),
}
"""What the file may say of each parameter; one that it lacks keeps its default."""

FITTED = {
    "x_mean_": Rule(_is_list(_is_centre), "a list of finite numbers"),
    "x_scale_": Rule(_is_list(_is_scale), f"a list of numbers, each {_SCALE.wanted}"),
    "y_mean_": _CENTRE,
    "y_scale_": _SCALE,
    "elbo_": _REAL,
    "fit_seconds_": _SPAN,
    "n_rows_seen_": Rule(
        lambda value: _is_number(value) and value > 0, "a number above 0"
    ),
    "n_iter_": _COUNT,
    "n_features_in_": Rule(lambda value: _is_whole(value, 1), "a whole number above 0"),
    "converged_": Rule(lambda value: type(value) is bool, "true or false"),
    "message_": _TEXT,
    "history_": Rule(
        lambda value: isinstance(value, dict) and value.keys() == {"reason", "records"},
        "an object of reason and records",
    ),
    "classes_": _LABELS,
    "feature_names_in_": _LABELS,
}
LABELS = tuple(name for name, rule in FITTED.items() if rule is _LABELS)
"""Arrays of labels, which are saved with their type."""

HISTORY = {
    "reason": _TEXT,
    "records": Rule(
        _is_list(lambda value: isinstance(value, dict)), "a list of objects"
    ),
}

RECORD = {
    "step": _COUNT,
    "seconds": _SPAN,
    "objective": _REAL,
    "score": _REAL,
    "step_size": _REAL,
    "halvings": Rule(_or_none(_is_whole), "a whole number or null"),
    "refused": _COUNT,
    "steps_per_second": _REAL,
}

_REGRESSION = {
    "gaussian": (likelihoods.Gaussian,),
    "student-t": (likelihoods.StudentT,),
    "heteroskedastic": (likelihoods.HeteroskedasticGaussian,),
    "gamma": (likelihoods.Gamma,),
    "beta": (likelihoods.Beta,),
    "poisson": (likelihoods.Poisson,),
    "negative-binomial": (likelihoods.NegativeBinomial,),
}
_CLASSES = {
    "bernoulli": (likelihoods.Bernoulli,),
    "softmax": (likelihoods.Softmax,),
    "robust-max": (likelihoods.RobustMax,),
}
LIKELIHOODS: dict[str, dict[str, tuple[type, ...]]] = {
    "GPRegressor": _REGRESSION
    | {"auto": tuple(kind for noise in NOISES for kind in _REGRESSION[noise])},
    "GPClassifier": _CLASSES | {"auto": (likelihoods.Bernoulli, likelihoods.Softmax)},
    "GPOrdinal": _CLASSES | {"auto": (likelihoods.Ordinal,)},
}
"""The likelihood that a model has, by estimator and by the name its user gave."""

SORTED = ("GPClassifier", "GPOrdinal")
"""Estimators that look up a label in `classes_`, which must be in increasing order."""

_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str}
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|U\d{1,9}|O)")


def checked(
    kind: str, described: Mapping[str, Any], model: gp.SparseGP
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the attributes of an estimator, from what a file says of it.

    `kind` is the name of its class. Raises unless every field passes its rule, and all
    agree with each other and with the model.
    """
    keys = {"estimator", "params", "fitted", "user"}
    if described.keys() != keys:
        raise InputError(f"it has {shown(sorted(described))}; it should have {keys}")
    params = _passed(described["params"], PARAMS, "params")
    fitted = _passed(described["fitted"], FITTED, "fitted")
    if not isinstance(described["user"], dict):
        raise InputError(f"user is {shown(described['user'])}; it should be an object")
    _check_names(kind, params, model)
    width = model.inducing.shape[1]
    values = {name: fitted[name] for name in fitted if name != "history_"}
    for name in ("x_mean_", "x_scale_"):
        _check_length(name, values[name], width)
        values[name] = np.asarray(values[name], float)
    if values["n_features_in_"] != width:
        raise InputError(
            f"n_features_in_ is {values['n_features_in_']}; the model has {width} "
            "inputs"
        )
    if "feature_names_in_" in values:
        names = _labels("feature_names_in_", values["feature_names_in_"], "UO")
        _check_length("feature_names_in_", names, width)
        values["feature_names_in_"] = names.astype(object)
    if kind == "GPRegressor":
        _check_regressor(values, model)
    else:
        values["classes_"] = _classes(kind, values, model)
    _check_units(values, model)
    values["elbo_"] = _or_nan(values["elbo_"])
    return params, values | {"history_": _history(fitted["history_"])}


def _passed(node: Any, rules: Mapping[str, Rule], where: str) -> dict[str, Any]:
    """An object whose fields all have a rule, and pass it."""
    if not isinstance(node, dict):
        raise InputError(f"{where} is {shown(node)}; it should be an object")
    if unknown := sorted(node.keys() - rules.keys()):
        raise IncompatibleFileError(
            f"{where} has {shown(unknown[0])}, which this natgrad does not know; a "
            "newer one may"
        )
    for name, rule in rules.items():
        # A parameter has a default, and so may be of a later version than the file.
        if name not in node and rule.is_required and rules is not PARAMS:
            raise InputError(f"{where} has no {name}; it should be {rule.wanted}")
        if name in node and not rule.accepts(node[name]):
            raise InputError(
                f"{name} is {shown(node[name])}; it should be {rule.wanted}"
            )
    return dict(node)


def _check_length(name: str, values: Any, length: int) -> None:
    if len(values) != length:
        raise InputError(
            f"{name} has {len(values)} values; the model has {length} inputs"
        )


def _check_names(kind: str, params: dict[str, Any], model: gp.SparseGP) -> None:
    """Raises unless a likelihood or kernel given by name is the one in the model."""
    kernels = {name: (kernel,) for name, kernel in KERNELS.items()}
    for name, known in (("likelihood", LIKELIHOODS[kind]), ("kernel", kernels)):
        given, found = params.get(name), getattr(model, name)
        if given is None:
            continue
        if given not in known:
            raise InputError(
                f"{name} is {shown(given)}; a {kind} has one of {', '.join(known)}"
            )
        if type(found) not in known[given]:
            raise InputError(
                f"{name} is {given!r}, and the model has a {type(found).__name__}; fit "
                "again with it, or set it back"
            )


def _check_regressor(values: dict[str, Any], model: gp.SparseGP) -> None:
    if "classes_" in values:
        raise InputError("it has classes_; a GPRegressor has none")
    if _outcome(model, "moments") is None:
        raise InputError(
            f"it is a GPRegressor, and the model has a "
            f"{type(model.likelihood).__name__}, which has no mean; it should be a "
            "GPClassifier"
        )


def _classes(kind: str, values: dict[str, Any], model: gp.SparseGP) -> np.ndarray:
    """The labels of a classifier, as many as its model has classes."""
    shape = _outcome(model, "probabilities")
    if shape is None:
        raise InputError(
            f"it is a {kind}, and the model has a {type(model.likelihood).__name__}, "
            "which has no classes; it should be a GPRegressor"
        )
    if "classes_" not in values:
        raise InputError(f"it has no classes_; a {kind} has some")
    found = _labels("classes_", values["classes_"])
    if found.shape != shape:
        raise InputError(
            f"classes_ has {len(found)} values; the model has {shape[0]} classes"
        )
    labels = found.tolist()
    if len(set(labels)) < len(labels):
        raise InputError(f"classes_ is {shown(labels)}; no two should be the same")
    if kind in SORTED and sorted(labels) != labels:
        raise InputError(f"classes_ is {shown(labels)}; it should be in order")
    return found


def _outcome(model: gp.SparseGP, method: str) -> Any:
    """The shape of what a likelihood gives for one row, None if it cannot."""
    latents = model.likelihood.latents
    f = jnp.zeros(() if latents is None else (latents,), model.inducing.dtype)
    try:
        found = jax.eval_shape(getattr(model.likelihood, method), f, f)
    except NotImplementedError:
        return None
    except Exception as error:  # of a user's own class
        raise InputError(f"the model's likelihood has no {method}: {error}") from error
    return jax.tree.leaves(found)[0].shape


def _check_units(values: dict[str, Any], model: gp.SparseGP) -> None:
    """Raises where targets that are labels, counts or shares have been scaled."""
    support = getattr(model.likelihood, "support", "real")
    has_labels = "classes_" in values or support in ("unit", "count")
    if (has_labels or support == "positive") and values["y_mean_"] != 0:
        raise InputError(
            f"y_mean_ is {values['y_mean_']}; with {type(model.likelihood).__name__} "
            "it should be 0"
        )
    if has_labels and values["y_scale_"] != 1:
        raise InputError(
            f"y_scale_ is {values['y_scale_']}; with {type(model.likelihood).__name__} "
            "it should be 1"
        )


def _labels(name: str, node: dict[str, Any], kinds: str = "biufUO") -> np.ndarray:
    """An array of labels; its type takes no more memory than the values need."""
    dtype, values = node["dtype"], node["values"]
    found = _DTYPE.fullmatch(dtype) if isinstance(dtype, str) else None
    if found is None or found[1][0] not in kinds:
        raise InputError(
            f"{name} is of type {shown(dtype)}; it should be of numbers or strings"
        )
    kind = found[1][0]
    if not isinstance(values, list) or {type(v) for v in values} - {_KINDS[kind]}:
        raise InputError(
            f"{name} is {shown(values)}; it should be a list of {_KINDS[kind].__name__}"
        )
    code = found[1]
    if kind == "U":
        longest = max(map(len, values), default=0)
        if longest > int(code[1:]) or longest * len(values) > MAX_LABELS:
            raise InputError(
                f"{name} has {len(values)} values of up to {longest} characters; its "
                f"type is {code}, and {MAX_LABELS} are allowed in all"
            )
        code = f"U{max(longest, 1)}"
    try:
        array = np.asarray(values, code)
    except OverflowError:
        array = np.zeros(0)
    if array.tolist() != values:
        raise InputError(f"{name} is {shown(values)}; {dtype} does not hold that")
    return array


def _history(node: dict[str, Any]) -> dict[str, Any]:
    """The history of a run, in which a number that was not finite is NaN."""
    history = _passed(node, HISTORY, "history_")
    needed = {
        field.name: RECORD[field.name]._replace(
            is_required=field.default is dataclasses.MISSING
        )
        for field in dataclasses.fields(Record)
    }
    records = [_passed(each, needed, "a record") for each in history["records"]]
    for record in records:
        record["objective"] = _or_nan(record["objective"])
    return {"reason": history["reason"], "records": records}


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
