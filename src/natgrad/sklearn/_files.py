"""A fitted estimator as a model file: its parameters, attributes and model.

What is read is checked: each field by its rule, then all against each other and the
model.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import _registry as registry, gp
from natgrad._codec import fields, from_json, to_json
from natgrad._text import brief, shown
from natgrad.data._encoding import KINDS
from natgrad.errors import CorruptFileError, FitError, IncompatibleFileError, InputError
from natgrad.gp._files import FORMAT
from natgrad.gp.kernels._base import Sum
from natgrad.sklearn._double import in_double
from natgrad.sklearn._fields import Fitted, Labels, Params, SavedHistory, State
from natgrad.sklearn._kernels import rescaled
from natgrad.train._history import History


LABELS = ("classes_", "categories_", "feature_names_in_")

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
    kind = type(estimator).__name__
    if kind not in LIKELIHOODS:
        raise InputError(
            f"natgrad.sklearn.load cannot load a {kind}; save its model_ with "
            "natgrad.gp.save"
        )
    given = estimator.get_params()
    params = {k: _plain_param(k, given.get(k)) for k in fields(Params)}
    fitted = {k: _plain(k, getattr(estimator, k, None)) for k in fields(Fitted)}
    state = State(params=Params(**params), fitted=Fitted(**fitted))
    contents = to_json(state, KINDS)
    contents |= {"estimator": kind, "user": metadata or {}}
    # What was saved can be loaded.
    _checked(kind, contents, estimator.model_)
    FORMAT.write(path, estimator.model_, contents)


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
    from natgrad import sklearn  # whose estimators save by this file

    model, contents = FORMAT.read(path, **options)
    name = contents.get("estimator")
    if not isinstance(name, str) or name not in LIKELIHOODS:
        raise IncompatibleFileError(
            f"{path}: it has {shown(name)} and not an estimator; load models with "
            "natgrad.gp.load"
        )
    try:
        return _restore(getattr(sklearn, name)(), model, contents)
    except IncompatibleFileError as error:
        raise IncompatibleFileError(f"{path}: {error}") from None
    except (InputError, FitError) as error:
        raise CorruptFileError(f"{path}: invalid estimator: {error}") from None


def _restore(estimator: Any, model: gp.SparseGP, contents: dict[str, Any]) -> Any:
    """The estimator that `save` wrote."""
    state = _checked(type(estimator).__name__, contents, model)
    for name, value in vars(state.fitted).items():
        if value is not None:
            setattr(estimator, name, as_attribute(value))
    if (names := state.fitted.feature_names_in_) is not None:
        estimator.feature_names_in_ = names.array.astype(object)
    params = {name: getattr(state.params, name) for name in estimator.get_params()}
    if params["likelihood"] is None:  # an object, then, in the units of the targets
        params["likelihood"] = _in_units(model.likelihood, estimator.y_scale_)
    elif isinstance(params["likelihood"], tuple):
        params["likelihood"] = [*params["likelihood"]]
    if params["kernel"] is None:
        kernel = rescaled(model.kernel, estimator.x_scale_, is_inverse=True)
        params["kernel"] = model.kernel if kernel is None else kernel
    if "categories" in params:
        order = estimator.categories_
        if order.dtype.kind in "UO" or (order != estimator.classes_).any():
            params["categories"] = order.tolist()
    estimator.set_params(**params)
    estimator._set_model(model)
    return estimator


def as_attribute(value: Any) -> Any:
    """What an estimator has of a field."""
    if isinstance(value, Labels):
        return value.array
    if isinstance(value, SavedHistory):
        history = History()
        history.reason, history.records = value.reason, [*value.records]
        return history
    return np.asarray(value, float) if isinstance(value, tuple) else value


def _in_units(likelihood: Any, scale: Any) -> Any:
    """A likelihood in the units of the targets; a list of those of several outputs."""
    if likelihood.outputs is None:
        return likelihood.in_units(1 / scale)
    each = zip(likelihood.likelihoods, scale, strict=True)
    return [own.in_units(1 / unit) for own, unit in each]


def _plain_param(name: str, value: Any) -> Any:
    """A parameter as a file has it, None for an object."""
    if isinstance(value, np.generic):
        value = value.item()
    is_list = isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)
    if is_list and name != "categories":
        return tuple(value)
    return value if isinstance(value, str | int | float | dict) else None


def _plain(name: str, value: Any) -> Any:
    """An attribute as a file has it."""
    if name in LABELS and value is not None:
        return Labels(value.dtype.str, tuple(value.tolist()))
    if isinstance(value, History):
        return SavedHistory(value.reason, tuple(value.thinned(RECORDS)))
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


# What is read is checked


def _checked(kind: str, contents: Mapping[str, Any], model: gp.SparseGP) -> State:
    """What a file has of an estimator; `kind` is the name of its class.

    Raises unless every field passes its rule, and all agree with each other and with
    the model.
    """
    if not isinstance(user := contents.get("user"), dict):
        raise InputError(f"user is {shown(user)}; it should be an object")
    node = {k: contents[k] for k in contents if k not in ("estimator", "user")}
    state = from_json(node, State, "estimator", KINDS)
    _check_names(kind, state.params, model)
    for name, found, wanted in _facts(kind, state.fitted, model):
        if found != wanted:
            raise InputError(f"{name} is {shown(found)}; it should be {shown(wanted)}")
    return state


def _facts(
    kind: str, fitted: Fitted, model: gp.SparseGP
) -> Iterator[tuple[str, Any, Any]]:
    """What fields are, and what they should be with each other and with the model."""
    schema, likelihood = fitted.schema_, model.likelihood
    width, law = model.inducing.shape[1], type(likelihood).__name__
    yield "the number of x_mean_", len(fitted.x_mean_), width
    yield "the number of x_scale_", len(fitted.x_scale_), width
    yield "the number of features of schema_", len(schema.features), width
    yield "n_features_in_", fitted.n_features_in_, len(schema.columns)
    if fitted.feature_names_in_ is not None:
        yield "feature_names_in_", [*fitted.feature_names_in_.values], schema.names
    for name in ("y_mean_", "y_scale_"):
        number = np.size(found) if np.ndim(found := getattr(fitted, name)) else None
        yield f"the number of outputs of {name}", number, likelihood.outputs
    method = "moments" if kind == "GPRegressor" else "probabilities"
    shape = _outcome(model, method)
    yield f"that {law} has no {method}, as a {kind} needs,", shape is None, False
    classes, order = fitted.classes_, fitted.categories_
    yield "that it has classes_", classes is not None, kind != "GPRegressor"
    yield "that it has categories_", order is not None, kind == "GPOrdinal"
    if classes is not None:
        labels = classes.array.tolist()  # a label is looked up among them
        yield "the number of classes_", (len(labels),), shape
        yield "classes_", labels, sorted({*labels})
        if order is not None:
            yield "categories_, sorted,", sorted(order.values), labels
            yield "the type of categories_", order.array.dtype, classes.array.dtype
    if likelihood.outputs is None:  # labels, counts or shares are not scaled
        if not likelihood.is_location:
            yield f"y_mean_ with {law}", fitted.y_mean_, 0
        if not likelihood.has_scale:
            yield f"y_scale_ with {law}", fitted.y_scale_, 1


def _check_names(kind: str, params: Params, model: gp.SparseGP) -> None:
    """Raises unless a likelihood or kernel given by name is the one in the model."""
    kernels: dict[str, tuple[type, ...]] = {
        name: (getattr(gp.kernels, kind),) for name, kind in registry.KERNELS.items()
    }
    kernels["auto"] = (gp.kernels.Matern52, Sum)
    for name, known in (("likelihood", LIKELIHOODS[kind]), ("kernel", kernels)):
        given, parts = getattr(params, name), _parts(getattr(model, name))
        if given is None:
            continue
        each = given if isinstance(given, tuple) else [given] * len(parts)
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
    part = getattr(part, "observed", part)
    return getattr(part, "likelihoods", None) or getattr(part, "kernels", (part,))


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
