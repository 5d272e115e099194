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

from natgrad._export.numpy_code import numpy_code
from natgrad._export.program import ROWS, Program, looked_up
from natgrad._export.trace import program_of
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
        """One line that describes the model, without quotes or backslashes."""

    @property
    def width(self) -> int:
        """The number of inputs."""
        return self.predictor.model.inducing.shape[-1]

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, if they have names."""
        return []

    @property
    def columns(self) -> list[dict[str, Any]]:
        """How the columns of a table become the inputs, if they are not numbers."""
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
        if (moments := moments_at(self.predictor, mean, var)) is not None:
            answers["mean"], answers["variance"] = moments
        if (each := probabilities_at(self.predictor, mean, var)) is not None:
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


def to_numpy(predictor: Predictor, path: Place) -> None:
    """Writes the predictions as a Python file that imports only NumPy.

    Its `predict` takes rows x and returns a dictionary as in `to_stablehlo`.

    Raises:
        InputError: If the model has an operation with no NumPy equivalent.

    >>> gp.to_numpy(gp.predictor(model), "served.py")
    >>> import runpy
    >>> runpy.run_path("served.py")["predict"](x[:2])["mean"].shape
    (2,)
    """
    write_numpy(ModelAnswers(predictor), path)


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


def write_numpy(answers: AbstractAnswers, path: Place) -> None:
    """Writes answers as `to_numpy` does."""
    program = _program(answers)
    text = f"{_about(answers, program)}\n\nWritten by natgrad {_version()}."
    code = numpy_code(program, answers.title, text, answers.inputs, answers.columns)
    Path(path).write_text(code, encoding="utf-8")


def write_onnx(answers: AbstractAnswers, path: Place) -> None:
    """Writes answers as `to_onnx` does."""
    try:
        from natgrad._export.onnx_graph import onnx_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'to_onnx needs the package onnx: pip install "natgrad[onnx]"'
        ) from error
    program = _program(answers)
    text = f"{answers.title} {_about(answers, program)}"
    model = onnx_model(program, text, _version(), answers.inputs)
    Path(path).write_bytes(model.SerializeToString())


# The names of these functions are comments in the exported file.


def latent_at(predictor: Predictor, row: Array) -> tuple[Array, Array]:
    """The mean and the variance of each latent function at a row."""

    @jax.jit
    def latent(row: Array) -> tuple[Array, Array]:
        mean, var = predictor.latent_at(row[None, :])
        return mean[..., 0], var[..., 0]

    return latent(row)


def moments_at(
    predictor: Predictor, mean: Array, var: Array
) -> tuple[Array, Array] | None:
    """The mean and the variance of the target, if the likelihood has them."""

    @jax.jit
    def moments(mean: Array, var: Array) -> tuple[Array, Array]:
        return predictor.model.likelihood.moments(mean, var)

    return moments(mean, var) if _is_there(moments, mean, var) else None


def probabilities_at(predictor: Predictor, mean: Array, var: Array) -> Array | None:
    """The probability of each class, if the likelihood has classes."""

    @jax.jit
    def probabilities(mean: Array, var: Array) -> Array:
        return predictor.model.likelihood.probabilities(mean, var)

    return probabilities(mean, var) if _is_there(probabilities, mean, var) else None


def _is_there(function: Any, mean: Array, var: Array) -> bool:
    try:
        jax.eval_shape(function, mean, var)
    except (NotImplementedError, AttributeError):
        # A distribution of another library may lack the attribute itself.
        return False
    return True


def described(predictor: Predictor) -> str:
    """A model in one line."""
    model = predictor.model
    return (
        f"A sparse Gaussian process of kernel {_name(model.kernel)} and likelihood "
        f"{type(model.likelihood).__name__}."
    )


def _program(answers: AbstractAnswers) -> Program:
    arrays, rest = eqx.partition(answers, eqx.is_array)
    function = lambda arrays, x: eqx.combine(arrays, rest)(x)
    predictor = answers.predictor
    program = program_of(function, arrays, answers.width, predictor.weights.dtype)
    for name, (index, labels) in answers.labels.items():
        program = looked_up(program, name, index, labels)
    return program


def _version() -> str:
    return metadata.version("natgrad")


def _name(kernel: AbstractKernel) -> str:
    is_kernel = lambda node: node is not kernel and isinstance(node, AbstractKernel)
    nodes = jax.tree.leaves(kernel, is_leaf=is_kernel)
    inner = ", ".join(_name(node) for node in nodes if is_kernel(node))
    return type(kernel).__name__ + (f"({inner})" if inner else "")


def _about(answers: AbstractAnswers, program: Program) -> str:
    size, width = len(answers.predictor.model.inducing), answers.width
    shapes = {
        key: ", ".join(["N", *map(str, value.shape[1:])])
        for key, value in program.outputs.items()
    }
    lines = "\n".join(f"    {key}: [{shape}]" for key, shape in shapes.items())
    return (
        f"It has {size} inducing inputs, in {program.x.dtype.name}. "
        f"From N rows of {width} inputs, x: [N, {width}], it predicts\n\n{lines}"
    )
