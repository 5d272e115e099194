"""Export: an estimator's predictions as files that run without natgrad."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.utils.validation import check_is_fitted

from natgrad.data._schema import Schema
from natgrad.errors import InputError
from natgrad.gp._export import (
    AbstractAnswers,
    described,
    if_there,
    latent_at,
    write_onnx,
    write_stablehlo,
)
from natgrad.gp._prediction import Predictor, checked_levels
from natgrad.gp.likelihoods._halving import quantile_by_halving
from natgrad.sklearn._inputs import schema_of


class Gaps(eqx.Module):
    """What a model sees of a row of numbers, in which NaN is a gap."""

    fill: Float[Array, " C"]
    places: Float[Array, "C D"]  # of each number among the inputs
    marks: Float[Array, "C D"]  # of its indicator, if it has one

    def encode(self, row: Array) -> Array:
        is_gap = row != row
        filled = jnp.where(is_gap, self.fill, row)
        return filled @ self.places + is_gap.astype(row.dtype) @ self.marks


class TableAnswers(AbstractAnswers):
    """The predictions of an estimator for a row, in the units of its table."""

    predictor: Predictor
    x_mean: Float[Array, " D"]
    x_scale: Float[Array, " D"]
    gaps: "Gaps | None"
    # One number, or one for each output.
    y_mean: float | tuple[float, ...] = eqx.field(static=True)
    y_scale: float | tuple[float, ...] = eqx.field(static=True)
    levels: tuple[float, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    classes: tuple[Any, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)  # of each class in the model
    estimator: str = eqx.field(static=True)
    quantile: Callable[..., Array] = eqx.field(static=True)

    @property
    def width(self) -> int:
        return len(self.x_mean) if self.gaps is None else len(self.gaps.fill)

    @property
    def title(self) -> str:
        levels = f" Its quantiles are {', '.join(map(str, self.levels))}."
        return (
            f"A {self.estimator}, from and to the units of its table. "
            f"{described(self.predictor)}{levels if self.levels else ''}"
        )

    @property
    def inputs(self) -> list[str]:
        return list(self.names)

    @property
    def labels(self) -> dict[str, tuple[str, np.ndarray]]:
        if not self.classes:
            return {}
        return {"label": ("class_index", np.asarray(self.classes))}

    def at(self, row: Array) -> dict[str, Array]:
        if self.gaps is not None:
            row = self.gaps.encode(row)
        mean, var = latent_at(self.predictor, (row - self.x_mean) / self.x_scale)
        if self.classes:
            return self._classes_at(mean, var)
        answers: dict[str, Any] = {}
        y_mean, y_scale = _numbers(self.y_mean), _numbers(self.y_scale)
        moments = if_there(self.predictor.model.likelihood.moments, mean, var)
        if moments is not None:
            answers["mean"] = moments[0] * y_scale + y_mean
            answers["std"] = jnp.sqrt(moments[1]) * y_scale
        if self.levels:
            levels = jnp.asarray(self.levels, mean.dtype)
            each = lambda level: self._quantile(mean, var, level) * y_scale + y_mean
            answers["quantiles"] = jax.vmap(each, out_axes=-1)(levels)
        return answers

    def _quantile(self, mean: Array, var: Array, level: Array) -> Array:
        likelihood: Any = self.predictor.model.likelihood
        if likelihood.outputs is None:
            return self.quantile(likelihood, mean, var, level)
        rows = zip(
            likelihood.likelihoods, *likelihood.marginals(mean, var), strict=True
        )
        return jnp.stack([self.quantile(*row, level) for row in rows])

    def _classes_at(self, mean: Array, var: Array) -> dict[str, Array]:
        likelihood = self.predictor.model.likelihood
        each = if_there(likelihood.probabilities, mean, var)
        if each is None:
            name = type(likelihood).__name__
            raise InputError(f"{name} has no probabilities of classes to export")
        each = jnp.stack([each[place] for place in self.places]) / each.sum()
        return {"probabilities": each, "class_index": jnp.argmax(each)}


def to_onnx(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as an ONNX model."""
    answers = _answers(estimator, quantiles, quantile_by_halving)
    try:
        write_onnx(answers, path)
    except InputError as error:
        if not answers.levels:
            raise
        name = type(estimator.model_.likelihood).__name__
        raise InputError(
            f"quantiles of {name} cannot be exported here: {error}; or omit quantiles"
        ) from error


def to_stablehlo(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as a function of `jax.export`."""
    write_stablehlo(_answers(estimator, quantiles, _quantile), path)


def _answers(estimator: Any, levels: Any, quantile: Callable[..., Array]) -> Any:
    check_is_fitted(estimator)
    classes = getattr(estimator, "classes_", np.empty(0))
    levels = checked_levels(levels) if np.size(levels) else ()
    if len(classes) and len(levels):
        raise InputError(
            f"quantiles is {list(levels)}; a {type(estimator).__name__} predicts "
            "classes, which have none: omit quantiles"
        )
    schema = schema_of(estimator)
    inputs = schema.names if schema.is_numeric else schema.features
    has_names = hasattr(estimator, "feature_names_in_") or not schema.is_numeric
    return TableAnswers(
        estimator._predictor,
        jnp.asarray(estimator.x_mean_),
        jnp.asarray(estimator.x_scale_),
        _gaps(schema),
        _static(estimator.y_mean_),
        _static(estimator.y_scale_),
        tuple(map(float, levels)),
        tuple(inputs) if has_names else (),
        _plain(classes),
        tuple(np.argsort(estimator._order).tolist()) if len(classes) else (),
        type(estimator).__name__,
        quantile,
    )


def _gaps(schema: Schema) -> Gaps | None:
    """How rows of numbers with gaps are encoded, if the training rows had some."""
    if schema.is_plain or not schema.is_numeric:
        return None
    columns = schema.columns
    places, marks = np.zeros((2, len(columns), len(schema.features)))
    at = 0
    for column, place, mark in zip(columns, places, marks, strict=True):
        place[at] = 1.0
        mark[at + 1 : at + 1 + column.has_gaps] = 1.0
        at += len(column.features)
    fill = [getattr(column, "mean", None) or 0.0 for column in columns]
    return Gaps(jnp.asarray(fill), jnp.asarray(places), jnp.asarray(marks))


def _quantile(likelihood: Any, mean: Array, var: Array, level: Array) -> Array:
    return likelihood.quantile(mean, var, level)


def _numbers(value: float | tuple[float, ...]) -> Any:
    return jnp.asarray(value) if isinstance(value, tuple) else value


def _static(value: Any) -> float | tuple[float, ...]:
    return tuple(value.tolist()) if np.ndim(value) else float(value)


def _plain(classes: np.ndarray) -> tuple[Any, ...]:
    """Labels as text or numbers, all of one kind."""
    plain = np.asarray(classes.tolist())
    if plain.dtype.kind not in "Uifb" or plain.tolist() != classes.tolist():
        raise InputError(
            f"classes_ is {classes[:10].tolist()}; to export them, make them all text, "
            "all numbers or all booleans"
        )
    return tuple(plain.tolist())
