"""Export: an estimator's predictions as files that run without natgrad."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.utils.validation import check_is_fitted

from natgrad.errors import InputError
from natgrad.gp._export import (
    AbstractAnswers,
    described,
    latent_at,
    moments_at,
    probabilities_at,
    write_numpy,
    write_onnx,
    write_stablehlo,
)
from natgrad.gp._prediction import Predictor, checked_levels
from natgrad.gp.likelihoods._halving import quantile_by_halving


class TableAnswers(AbstractAnswers):
    """The predictions of an estimator for a row, in the units of its table."""

    predictor: Predictor
    x_mean: Float[Array, " D"]
    x_scale: Float[Array, " D"]
    y_mean: float = eqx.field(static=True)
    y_scale: float = eqx.field(static=True)
    levels: tuple[float, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    classes: tuple[Any, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)  # of each class in the model
    estimator: str = eqx.field(static=True)
    quantile: Callable[..., Array] = eqx.field(static=True)

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
        mean, var = latent_at(self.predictor, (row - self.x_mean) / self.x_scale)
        if self.classes:
            return self._classes_at(mean, var)
        answers = {}
        if (moments := moments_at(self.predictor, mean, var)) is not None:
            answers["mean"] = moments[0] * self.y_scale + self.y_mean
            answers["std"] = jnp.sqrt(moments[1]) * self.y_scale
        if self.levels:
            levels = jnp.asarray(self.levels, mean.dtype)
            likelihood = self.predictor.model.likelihood
            each = lambda level: self.quantile(likelihood, mean, var, level)
            answers["quantiles"] = jax.vmap(each)(levels) * self.y_scale + self.y_mean
        return answers

    def _classes_at(self, mean: Array, var: Array) -> dict[str, Array]:
        each = probabilities_at(self.predictor, mean, var)
        if each is None:
            name = type(self.predictor.model.likelihood).__name__
            raise InputError(f"{name} has no probabilities of classes to export")
        each = jnp.stack([each[place] for place in self.places]) / each.sum()
        return {"probabilities": each, "class_index": jnp.argmax(each)}


def to_numpy(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as a Python file."""
    _write(write_numpy, estimator, path, quantiles)


def to_onnx(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as an ONNX model."""
    _write(write_onnx, estimator, path, quantiles)


def to_stablehlo(estimator: Any, path: Any, quantiles: Any) -> None:
    """Writes an estimator as a function of `jax.export`."""
    write_stablehlo(_answers(estimator, quantiles, _quantile), path)


def _write(writer: Callable[..., None], estimator: Any, path: Any, levels: Any) -> None:
    answers = _answers(estimator, levels, quantile_by_halving)
    try:
        writer(answers, path)
    except InputError as error:
        if not answers.levels:
            raise
        name = type(estimator.model_.likelihood).__name__
        raise InputError(
            f"quantiles of {name} cannot be exported here: {error}; or omit quantiles"
        ) from error


def _answers(estimator: Any, levels: Any, quantile: Callable[..., Array]) -> Any:
    check_is_fitted(estimator)
    classes = getattr(estimator, "classes_", np.empty(0))
    levels = checked_levels(levels) if np.size(levels) else ()
    if len(classes) and len(levels):
        raise InputError(
            f"quantiles is {list(levels)}; a {type(estimator).__name__} predicts "
            "classes, which have none: omit quantiles"
        )
    return TableAnswers(
        estimator._predictor,
        jnp.asarray(estimator.x_mean_),
        jnp.asarray(estimator.x_scale_),
        float(estimator.y_mean_),
        float(estimator.y_scale_),
        tuple(map(float, levels)),
        tuple(map(str, getattr(estimator, "feature_names_in_", ()))),
        _plain(classes),
        tuple(np.argsort(estimator._order).tolist()) if len(classes) else (),
        type(estimator).__name__,
        quantile,
    )


def _quantile(likelihood: Any, mean: Array, var: Array, level: Array) -> Array:
    return likelihood.quantile(mean, var, level)


def _plain(classes: np.ndarray) -> tuple[Any, ...]:
    """Labels as text or numbers, all of one kind."""
    plain = np.asarray(classes.tolist())
    if plain.dtype.kind not in "Uifb" or plain.tolist() != classes.tolist():
        raise InputError(
            f"classes_ is {classes[:10].tolist()}; to export them, make them all text, "
            "all numbers or all booleans"
        )
    return tuple(plain.tolist())
