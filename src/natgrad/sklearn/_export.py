"""Export: an estimator's predictions as files that run without natgrad."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.utils.validation import check_is_fitted

from natgrad.data._schema import Schema
from natgrad.errors import InputError
from natgrad.gp._export import (
    Answers,
    described,
    if_there,
    latent_at,
    write_onnx,
    write_stablehlo,
)
from natgrad.gp._prediction import Predictor, checked_levels


def to_onnx(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as an ONNX model."""
    levels, names = _checked(estimator, quantiles)
    answers = _answers(estimator, levels)
    title = (
        f"A {type(estimator).__name__}, from and to the units of its table. "
        f"{described(estimator._predictor)}"
    )
    if levels:
        title += f" Its quantiles are {', '.join(map(str, levels))}."
    classes = _plain(estimator.classes_) if hasattr(estimator, "classes_") else None
    schema = estimator.schema_
    has_names = hasattr(estimator, "feature_names_in_") or not schema.is_numeric
    shown, width = names if has_names else (), len(names)
    try:
        write_onnx(answers, estimator._predictor, path, width, title, shown, classes)
    except InputError as error:
        if not levels:
            raise
        name = type(estimator.model_.likelihood).__name__
        raise InputError(
            f"quantiles of {name} cannot be exported here: {error}; or omit quantiles"
        ) from error


def to_stablehlo(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as a function of `jax.export`; StableHLO has no labels."""
    levels, names = _checked(estimator, quantiles)
    answers = _answers(estimator, levels)
    write_stablehlo(answers, estimator._predictor, path, len(names))


def _checked(estimator: Any, levels: Any) -> tuple[list[float], list[str]]:
    """The levels of quantiles, and the names of the inputs."""
    check_is_fitted(estimator)
    levels = checked_levels(levels).tolist() if np.size(levels) else []
    if hasattr(estimator, "classes_") and levels:
        raise InputError(
            f"quantiles is {levels}; a {type(estimator).__name__} predicts classes, "
            "which have none: omit quantiles"
        )
    schema = estimator.schema_
    return levels, schema.names if schema.is_numeric else schema.features


def _answers(estimator: Any, levels: list[float]) -> Answers:
    """The predictions of an estimator for a row, in the units of its table."""
    encode = _encoder(estimator.schema_)
    x_mean, x_scale = jnp.asarray(estimator.x_mean_), jnp.asarray(estimator.x_scale_)
    # One number, or one for each output.
    y_mean, y_scale = jnp.asarray(estimator.y_mean_), jnp.asarray(estimator.y_scale_)
    is_classifier = hasattr(estimator, "classes_")

    def answers(predictor: Predictor, row: Array) -> dict[str, Array]:
        latent = latent_at(predictor, (encode(row) - x_mean) / x_scale)
        likelihood: Any = predictor.model.likelihood
        if is_classifier:
            return _class_answers(likelihood, latent, np.argsort(estimator._order))
        found: dict[str, Any] = {}
        if (moments := if_there(likelihood.moments, *latent)) is not None:
            found["mean"] = moments[0] * y_scale + y_mean
            found["std"] = jnp.sqrt(moments[1]) * y_scale
        if levels:
            each = lambda level: likelihood.quantile(*latent, level) * y_scale + y_mean
            numbers = jnp.asarray(levels, latent[0].dtype)
            found["quantiles"] = jax.vmap(each, out_axes=-1)(numbers)
        return found

    return answers


def _class_answers(
    likelihood: Any, latent: tuple[Array, Array], places: np.ndarray
) -> dict[str, Array]:
    """Probabilities of classes, given the place of each in the model."""
    each = if_there(likelihood.probabilities, *latent)
    if each is None:
        name = type(likelihood).__name__
        raise InputError(f"{name} has no probabilities of classes to export")
    each = jnp.stack([each[place] for place in places]) / each.sum()
    return {"probabilities": each, "class_index": jnp.argmax(each)}


def _encoder(schema: Schema) -> Callable[[Array], Array]:
    """What a model sees of a row of numbers, in which NaN is a gap."""
    if schema.is_plain or not schema.is_numeric:
        return lambda row: row
    columns = schema.columns
    # Where each number is among the inputs, and its indicator, if it has one.
    places, marks = np.zeros((2, len(columns), len(schema.features)))
    at = 0
    for column, place, mark in zip(columns, places, marks, strict=True):
        place[at] = 1.0
        mark[at + 1 : at + 1 + column.has_gaps] = 1.0
        at += len(column.features)
    fill = np.array([getattr(column, "mean", None) or 0.0 for column in columns])

    def encode(row: Array) -> Array:
        is_gap = row != row
        filled = jnp.where(is_gap, fill, row)
        return filled @ places + is_gap.astype(row.dtype) @ marks

    return encode


def _plain(classes: np.ndarray) -> np.ndarray:
    """Labels as text or numbers, all of one kind."""
    plain = np.asarray(classes.tolist())
    if plain.dtype.kind not in "Uifb" or plain.tolist() != classes.tolist():
        raise InputError(
            f"classes_ is {classes[:10].tolist()}; to export them, make them all text, "
            "all numbers or all booleans"
        )
    return plain
