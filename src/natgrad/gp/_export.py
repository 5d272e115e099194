"""Export: predictions as files that run without natgrad."""

import abc
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import export
from jaxtyping import Array

from natgrad._export.program import ROWS, looked_up, program_of
from natgrad.gp._prediction import Predictor
from natgrad.gp.kernels import AbstractKernel


PLATFORMS = ("cpu", "cuda", "tpu")
Place = str | os.PathLike[str]


class AbstractAnswers(eqx.Module):
    """The outputs of an exported file for a row, by name."""

    predictor: eqx.AbstractVar[Predictor]

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """One line that describes the model."""

    @property
    def width(self) -> int:
        """The number of inputs."""
        return self.predictor.model.inducing.shape[-1]

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, if they have names."""
        return []

    @property
    def labels(self) -> dict[str, tuple[str, np.ndarray]]:
        """Outputs that are looked up: the output with their index, and all values."""
        return {}

    @abc.abstractmethod
    def at(self, row: Array) -> dict[str, Array]:
        """All outputs for one row."""

    def __call__(self, x: Array) -> dict[str, Array]:
        # Row by row, so that only batching rules see the number of rows.
        return jax.vmap(self.at)(x)


class ModelAnswers(AbstractAnswers):
    """The predictions of a model, in its own units."""

    predictor: Predictor

    @property
    def title(self) -> str:
        return described(self.predictor)

    def at(self, row: Array) -> dict[str, Array]:
        mean, var = latent_at(self.predictor, row)
        answers = {"latent_mean": mean, "latent_variance": var}
        likelihood = self.predictor.model.likelihood
        if (moments := if_there(likelihood.moments, mean, var)) is not None:
            answers["mean"], answers["variance"] = moments
        if (each := if_there(likelihood.probabilities, mean, var)) is not None:
            answers["probabilities"] = each
        return answers


def to_stablehlo(predictor: Predictor, path: Place) -> None:
    """Writes the predictions for any number of rows as a function of `jax.export`.

    Load it with `jax.export.deserialize`. Its `call` takes rows x and returns a
    dictionary with "latent_mean" and "latent_variance", and with "mean", "variance" and
    "probabilities" if the likelihood has them. Needs the package `flatbuffers`.

    Raises:
        ImportError: If flatbuffers is not installed.

    >>> from pathlib import Path
    >>> gp.to_stablehlo(gp.predictor(model), "served.bin")
    >>> served = jax.export.deserialize(Path("served.bin").read_bytes())
    >>> sorted(served.call(x))
    ['latent_mean', 'latent_variance', 'mean', 'variance']
    """
    write_stablehlo(ModelAnswers(predictor), path)


def to_onnx(predictor: Predictor, path: Place) -> None:
    """Writes the predictions as an ONNX model. Needs the package `onnx`.

    The input is "x"; the outputs are named as in `to_stablehlo`.

    Raises:
        ImportError: If onnx is not installed.
        InputError: If the model has an operation with no ONNX equivalent.

    >>> gp.to_onnx(gp.predictor(model), "served.onnx")
    >>> import onnx
    >>> [output.name for output in onnx.load("served.onnx").graph.output]
    ['latent_mean', 'latent_variance', 'mean', 'variance']
    """
    write_onnx(ModelAnswers(predictor), path)


def write_stablehlo(answers: AbstractAnswers, path: Place) -> None:
    """Writes answers as `to_stablehlo` does. StableHLO has no text, hence no labels."""
    try:
        import flatbuffers as _  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "to_stablehlo needs the package flatbuffers: pip install "
            '"natgrad[stablehlo]"'
        ) from error
    predictor = answers.predictor
    rows = jax.ShapeDtypeStruct(
        (*export.symbolic_shape(ROWS), answers.width),
        predictor.weights.dtype,
    )
    function = jax.jit(lambda x: answers(x))
    exported = export.export(function, platforms=PLATFORMS)(rows)
    Path(path).write_bytes(exported.serialize())


def write_onnx(answers: AbstractAnswers, path: Place) -> None:
    """Writes answers as `to_onnx` does."""
    try:
        from natgrad._export.onnx_graph import onnx_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'to_onnx needs the package onnx: pip install "natgrad[onnx]"'
        ) from error
    arrays, rest = eqx.partition(answers, eqx.is_array)
    function = lambda arrays, x: eqx.combine(arrays, rest)(x)
    dtype = answers.predictor.weights.dtype
    program = program_of(function, arrays, answers.width, dtype)
    for name, (index, labels) in answers.labels.items():
        program = looked_up(program, name, index, labels)
    size = len(answers.predictor.model.inducing)
    text = f"{answers.title} It has {size} inducing inputs."
    version = metadata.version("natgrad")
    model = onnx_model(program, text, version, answers.inputs)
    Path(path).write_bytes(model.SerializeToString())


def latent_at(predictor: Predictor, row: Array) -> tuple[Array, Array]:
    """The mean and the variance of each latent function at a row."""
    mean, var = predictor.latent_at(row[None, :])
    return mean[..., 0], var[..., 0]


def if_there(function: Any, mean: Array, var: Array) -> Any:
    """The moments or the probabilities of a likelihood, or None if it has none."""
    try:
        return function(mean, var)
    except (NotImplementedError, AttributeError):
        # A distribution of another library may lack the attribute itself.
        return None


def described(predictor: Predictor) -> str:
    """A model in one line."""
    model = predictor.model
    return (
        f"A sparse Gaussian process of kernel {_name(model.kernel)} and likelihood "
        f"{type(model.likelihood).__name__}."
    )


def _name(kernel: AbstractKernel) -> str:
    is_kernel = lambda node: node is not kernel and isinstance(node, AbstractKernel)
    nodes = jax.tree.leaves(kernel, is_leaf=is_kernel)
    inner = ", ".join(_name(node) for node in nodes if is_kernel(node))
    return type(kernel).__name__ + (f"({inner})" if inner else "")
