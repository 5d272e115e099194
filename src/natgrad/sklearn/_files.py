"""A fitted estimator as a model file, with what is not the model beside it."""

import json
from typing import Any

import numpy as np

from natgrad import gp
from natgrad._container import shown
from natgrad.errors import (
    CorruptFileError,
    FitError,
    IncompatibleFileError,
    InputError,
)
from natgrad.gp._files import load_with_metadata
from natgrad.sklearn import _agreement as agreement, _fields as fields
from natgrad.sklearn._units import in_units
from natgrad.train._history import History


RECORDS = 1000
"""How many records of a history a file keeps: with all, a long run would not fit."""


def save(estimator: Any, path: Any, metadata: dict[str, Any] | None) -> None:
    """Writes an estimator; a parameter that is an object is left to its model."""
    contents = described(estimator, metadata)
    # What was saved can be loaded.
    agreement.checked(type(estimator).__name__, contents, estimator.model_)
    gp.save(estimator.model_, path, contents)


def described(estimator: Any, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """All that a file holds of an estimator, except its model."""
    kind = type(estimator).__name__
    if kind not in agreement.LIKELIHOODS:
        raise InputError(
            f"the estimator is a {kind}, which natgrad.sklearn.load cannot read; save "
            "its model_ by natgrad.gp.save"
        )
    return {
        "estimator": kind,
        "params": {name: _plain(v) for name, v in estimator.get_params().items()},
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
    """An estimator with all that `save` has kept of it."""
    params, fitted = agreement.checked(type(estimator).__name__, described, model)
    if params.get("likelihood") is None:  # an object, then, in the units of the targets
        params["likelihood"] = in_units(model.likelihood, 1 / fitted["y_scale_"])
    if params.get("kernel") is None:
        params["kernel"] = model.kernel
    estimator.set_params(**params)
    for name, value in fitted.items():
        setattr(estimator, name, value)
    estimator.history_ = History.from_dict(fitted["history_"])
    estimator._set_model(model)
    return estimator


def read(path: Any, kinds: dict[str, type], **options: Any) -> Any:
    """The estimator in a file, of one of some kinds."""
    model, described = load_with_metadata(path, **options)
    name = described.get("estimator")
    if not isinstance(name, str) or name not in kinds:
        raise IncompatibleFileError(
            f"{path}: it holds {shown(name)} and not an estimator; natgrad.gp.load "
            "reads models"
        )
    try:
        return restore(kinds[name](), model, described)
    except IncompatibleFileError as error:
        raise IncompatibleFileError(f"{path}: {error}") from None
    except (InputError, FitError) as error:
        raise CorruptFileError(f"{path}: its estimator is wrong: {error}") from None


def _plain(value: Any) -> Any:
    """A parameter as JSON, or None for an object."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, str | int | float | bool) else None


def _json(name: str, value: Any) -> Any:
    """An attribute as JSON."""
    if name in fields.LABELS:
        return {"dtype": value.dtype.str, "values": value.tolist()}
    if isinstance(value, History):
        return value.thinned(RECORDS).to_dict()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
