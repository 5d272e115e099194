"""A fitted estimator as a model file, with what is not the model beside it."""

import json
import math
from typing import Any

import numpy as np

from natgrad import gp
from natgrad.envelope import shown
from natgrad.errors import CorruptFileError, IncompatibleFileError
from natgrad.sklearn.units import in_units
from natgrad.train.history import History


NUMBERS = ("y_mean_", "y_scale_", "elbo_", "fit_seconds_", "n_rows_seen_")
WHOLE = ("n_iter_", "n_features_in_")
ARRAYS = ("x_mean_", "x_scale_")
LABELS = ("classes_", "categories_", "feature_names_in_")


def save(estimator: Any, path: Any, metadata: dict[str, Any] | None) -> None:
    """Writes an estimator; a parameter that is an object is left to its model."""
    plain = {name: _plain(value) for name, value in estimator.get_params().items()}
    fitted: dict[str, Any] = {name: getattr(estimator, name) for name in NUMBERS}
    fitted |= {name: int(getattr(estimator, name)) for name in WHOLE}
    fitted |= {name: getattr(estimator, name).tolist() for name in ARRAYS}
    fitted |= {"converged_": estimator.converged_, "message_": estimator.message_}
    fitted["history_"] = estimator.history_.to_dict()
    for name in LABELS:
        if hasattr(estimator, name):
            values = getattr(estimator, name)
            fitted[name] = {"dtype": values.dtype.str, "values": values.tolist()}
    described = {
        "estimator": type(estimator).__name__,
        "params": plain,
        "fitted": _finite(fitted),
        "user": metadata or {},
    }
    gp.save(estimator.model_, path, described)


def restore(estimator: Any, model: gp.SparseGP, described: dict[str, Any]) -> Any:
    """An estimator with all that `save` has kept of it."""
    params, fitted = described["params"], described["fitted"]
    known = estimator.get_params()
    given = {name: value for name, value in params.items() if name in known}
    if given.get("likelihood") is None:  # an object, then, in the user's units
        if not fitted["y_scale_"] > 0:
            raise ValueError(f"y_scale_ is {shown(fitted['y_scale_'])}")
        given["likelihood"] = in_units(model.likelihood, 1 / fitted["y_scale_"])
    if given.get("kernel") is None:
        given["kernel"] = model.kernel
    estimator.set_params(**given)
    for name in (*NUMBERS, "converged_", "message_"):
        value = fitted[name]
        setattr(estimator, name, math.nan if value is None else value)
    for name in WHOLE:
        setattr(estimator, name, int(fitted[name]))
    for name in ARRAYS:
        setattr(estimator, name, np.asarray(fitted[name], float))
    for name in LABELS:
        if name in fitted:
            dtype = np.dtype(str(fitted[name]["dtype"]))
            if dtype.kind == "O" and not all(
                isinstance(value, str) for value in fitted[name]["values"]
            ):
                raise ValueError(f"{name} is {shown(fitted[name])}")
            setattr(estimator, name, np.asarray(fitted[name]["values"], dtype))
    estimator.history_ = History.from_dict(fitted["history_"])
    estimator._set_model(model)
    return estimator


def read(path: Any, kinds: dict[str, type], **options: Any) -> Any:
    """The estimator in a file, of one of some kinds."""
    described = gp.read_metadata(path)
    name = described.get("estimator")
    if name not in kinds:
        raise IncompatibleFileError(
            f"{path}: it holds {shown(name)} and not an estimator; natgrad.gp.load "
            "reads models"
        )
    model = gp.load(path, **options)
    try:
        return restore(kinds[name](), model, described)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFileError(f"{path}: its estimator is wrong: {error}") from None


def _plain(value: Any) -> Any:
    """A parameter as JSON, or None for an object."""
    if isinstance(value, list | tuple | np.ndarray):  # the order of classes
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str | int | float | bool) else None


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
