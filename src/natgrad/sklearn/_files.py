"""A fitted estimator as a model file: its parameters, attributes and model.

What is read is checked: each field by its rule, then all against each other and the
model.
"""

import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import _registry as registry, gp
from natgrad._container import shown
from natgrad._text import brief
from natgrad.data._schema import Schema
from natgrad.errors import (
    CorruptFileError,
    FitError,
    IncompatibleFileError,
    InputError,
)
from natgrad.gp._files import load_with_metadata, save_with_metadata
from natgrad.gp.kernels._base import Sum
from natgrad.sklearn import _fields as fields
from natgrad.sklearn._columns import uncensored
from natgrad.sklearn._kernels import rescaled
from natgrad.sklearn._units import in_units
from natgrad.train._history import History


RECORDS = 1000
"""How many records of a history a file has: all of a long run would not fit."""


def _kinds(*names: str) -> tuple[type, ...]:
    entries = [registry.LIKELIHOODS[name] for name in names]
    return tuple(getattr(gp.likelihoods, entry.kind) for entry in entries)


_CLASSES = {name: _kinds(name) for name in registry.names("classification")}
LIKELIHOODS: dict[str, dict[str, tuple[type, ...]]] = {
    "GPRegressor": {name: _kinds(name) for name in registry.names("regression")}
    | {"auto": _kinds(*registry.names("regression"))},
    "GPClassifier": _CLASSES | {"auto": _kinds("bernoulli", "softmax")},
    "GPOrdinal": _CLASSES | dict.fromkeys(("auto", "ordinal"), _kinds("ordinal")),
}
"""The likelihood that a model has, by estimator and by the name its user gave."""


def save(estimator: Any, path: Any, metadata: dict[str, Any] | None) -> None:
    """Writes an estimator; a parameter that is an object is in its model."""
    contents = described(estimator, metadata)
    # What was saved can be loaded.
    _checked(type(estimator).__name__, contents, estimator.model_)
    save_with_metadata(estimator.model_, path, contents)


def described(estimator: Any, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """What a file has of an estimator besides its model."""
    kind = type(estimator).__name__
    if kind not in LIKELIHOODS:
        raise InputError(
            f"natgrad.sklearn.load cannot load a {kind}; save its model_ with "
            "natgrad.gp.save"
        )
    return {
        "estimator": kind,
        "params": {k: _plain(k, v) for k, v in estimator.get_params().items()},
        "fitted": _finite(
            {
                name: _json(name, getattr(estimator, name))
                for name in fields.FITTED
                if hasattr(estimator, name)
            }
        ),
        "user": metadata or {},
    }


def restore(estimator: Any, model: gp.SparseGP, described: dict[str, Any]) -> Any:
    """The estimator that `save` wrote."""
    params, fitted = _checked(type(estimator).__name__, described, model)
    if params.get("likelihood") is None:  # an object, then, in the units of the targets
        params["likelihood"] = _in_units(model.likelihood, fitted["y_scale_"])
    if params.get("kernel") is None:
        kernel = rescaled(model.kernel, fitted["x_scale_"], is_inverse=True)
        params["kernel"] = model.kernel if kernel is None else kernel
    params["date_periods"] = tuple(params.get("date_periods") or ())
    estimator.set_params(**params)
    for name, value in fitted.items():
        setattr(estimator, name, value)
    estimator.history_ = History.from_dict(fitted["history_"])
    estimator._set_model(model)
    return estimator


def _in_units(likelihood: Any, scale: Any) -> Any:
    """A likelihood in the units of the targets; a list of those of several outputs."""
    if likelihood.outputs is None:
        return in_units(likelihood, 1 / scale)
    each = zip(likelihood.likelihoods, scale, strict=True)
    return [in_units(own, 1 / unit) for own, unit in each]


def read(path: Any, kinds: dict[str, type], **options: Any) -> Any:
    """The estimator in a file, of one of some kinds."""
    model, described = load_with_metadata(path, **options)
    name = described.get("estimator")
    if not isinstance(name, str) or name not in kinds:
        raise IncompatibleFileError(
            f"{path}: it has {shown(name)} and not an estimator; load models with "
            "natgrad.gp.load"
        )
    try:
        return restore(kinds[name](), model, described)
    except IncompatibleFileError as error:
        raise IncompatibleFileError(f"{path}: {error}") from None
    except (InputError, FitError) as error:
        raise CorruptFileError(f"{path}: invalid estimator: {error}") from None


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON, or None for an object."""
    if isinstance(value, dict):
        return {key: _plain("", each) for key, each in value.items()}
    if name == "date_periods":
        return list(value)
    if isinstance(value, np.generic):
        value = value.item()
    is_list = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    if name == "likelihood" and is_list:
        return list(value)
    return value if isinstance(value, str | int | float | bool) else None


def _json(name: str, value: Any) -> Any:
    """An attribute as JSON."""
    if name in fields.LABELS:
        return {"dtype": value.dtype.str, "values": value.tolist()}
    if isinstance(value, Schema):
        return value.to_dict()
    if isinstance(value, History):
        return value.thinned(RECORDS).to_dict()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


# What is read is checked


def _checked(
    kind: str, described: Mapping[str, Any], model: gp.SparseGP
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the attributes of an estimator, from what a file says of it.

    `kind` is the name of its class. Raises unless every field passes its rule, and all
    agree with each other and with the model.
    """
    keys = {"estimator", "params", "fitted", "user"}
    if described.keys() != keys:
        raise InputError(f"it has {shown(sorted(described))}; it should have {keys}")
    params = fields.passed(described["params"], fields.PARAMS, "params")
    fitted = fields.passed(described["fitted"], fields.FITTED, "fitted")
    if not isinstance(described["user"], dict):
        raise InputError(f"user is {shown(described['user'])}; it should be an object")
    _check_names(kind, params, model)
    width = model.inducing.shape[1]
    values = {name: fitted[name] for name in fitted if name != "history_"}
    for name in ("x_mean_", "x_scale_"):
        _check_length(name, values[name], width)
        values[name] = np.asarray(values[name], float)
    number = width
    if "schema_" in values:
        values["schema_"] = schema = Schema.from_dict(values["schema_"])
        number = len(schema.columns)
        _check_length("schema_", schema.features, width)
    if values["n_features_in_"] != number:
        raise InputError(
            f"n_features_in_ is {values['n_features_in_']}; the model has {number} "
            "inputs"
        )
    if "feature_names_in_" in values:
        names = fields.labels("feature_names_in_", values["feature_names_in_"], "UO")
        _check_length("feature_names_in_", names, number)
        values["feature_names_in_"] = names.astype(object)
        if "schema_" in values and values["schema_"].names != names.tolist():
            raise InputError(
                f"schema_ has the columns {shown(values['schema_'].names)}; they "
                "should be those of feature_names_in_"
            )
    _check_outputs(values, model)
    if kind == "GPRegressor":
        _check_regressor(values, model)
    else:
        values["classes_"] = _classes(kind, values, model)
    if kind == "GPOrdinal":
        order = values["categories_"] = _categories(values)
        if order.dtype.kind in "UO" or (order != values["classes_"]).any():
            params["categories"] = order.tolist()
    elif "categories" in params or "categories_" in values:
        raise InputError(f"it has categories; a {kind} has none")
    _check_units(values, model)
    values["elbo_"] = fields.or_nan(values["elbo_"])
    return params, values | {"history_": fields.history(fitted["history_"])}


def _check_length(name: str, values: Any, length: int) -> None:
    if len(values) != length:
        raise InputError(
            f"{name} has {len(values)} values; the model has {length} inputs"
        )


def _check_outputs(values: dict[str, Any], model: gp.SparseGP) -> None:
    """Makes the units of several outputs arrays, as many as the model has outputs."""
    for name in ("y_mean_", "y_scale_"):
        found, outputs = values[name], model.likelihood.outputs
        if (len(found) if isinstance(found, list) else None) != outputs:
            wanted = "one number" if outputs is None else f"a list of {outputs} numbers"
            raise InputError(f"{name} is {shown(found)}; it should be {wanted}")
        if outputs is not None:
            values[name] = np.asarray(found, float)


def _check_names(kind: str, params: dict[str, Any], model: gp.SparseGP) -> None:
    """Raises unless a likelihood or kernel given by name is the one in the model."""
    kernels: dict[str, tuple[type, ...]] = {
        name: (getattr(gp.kernels, kind),) for name, kind in registry.KERNELS.items()
    }
    kernels["auto"] = (gp.kernels.Matern52, Sum)
    for name, known in (("likelihood", LIKELIHOODS[kind]), ("kernel", kernels)):
        given, parts = params.get(name), _parts(uncensored(getattr(model, name)))
        if given is None:
            continue
        each = given if isinstance(given, list) else [given] * len(parts)
        if len(each) != len(parts):
            raise InputError(f"{name} is {shown(given)}; the model has {len(parts)}")
        for own, found in zip(each, parts, strict=True):
            if own not in known:
                raise InputError(
                    f"{name} is {shown(own)}; a {kind} has one of {', '.join(known)}"
                )
            if type(found) not in known[own]:
                raise InputError(
                    f"{name} is {own!r}, and the model has a {type(found).__name__}; "
                    "fit again with it, or set it back"
                )


def _parts(part: Any) -> tuple[Any, ...]:
    """The likelihoods of several outputs, or the kernels of several functions."""
    return getattr(part, "likelihoods", None) or getattr(part, "kernels", (part,))


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
    found = fields.labels("classes_", values["classes_"])
    if found.shape != shape:
        raise InputError(
            f"classes_ has {len(found)} values; the model has {shape[0]} classes"
        )
    labels = found.tolist()
    if len(set(labels)) < len(labels):
        raise InputError(f"classes_ is {shown(labels)}; they should be distinct")
    if sorted(labels) != labels:  # a label is looked up among them
        raise InputError(f"classes_ is {shown(labels)}; it should be sorted")
    return found


def _categories(values: dict[str, Any]) -> np.ndarray:
    """The classes in their order; without one, that in which they are sorted."""
    classes = values["classes_"]
    if "categories_" not in values:
        return classes
    found = fields.labels("categories_", values["categories_"])
    if sorted(found.tolist()) != classes.tolist() or found.dtype != classes.dtype:
        raise InputError(
            f"categories_ is {shown(found.tolist())}; it should be "
            f"{shown(classes.tolist())} in another order"
        )
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
        raise InputError(
            f"the model's likelihood has no {method}: {brief(error)}"
        ) from error
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
