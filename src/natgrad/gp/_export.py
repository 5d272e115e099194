"""Export: predictions as files that run without natgrad."""

import os
from collections.abc import Callable, Sequence
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


Answers = Callable[[Predictor, Array], dict[str, Array]]
"""The outputs of an exported file, by name, from a predictor and one row."""


def model_answers(predictor: Predictor, row: Array) -> dict[str, Array]:
    """The predictions of a model, in its own units."""
    mean, var = latent_at(predictor, row)
    answers = {"latent_mean": mean, "latent_variance": var}
    likelihood = predictor.model.likelihood
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
    write_stablehlo(model_answers, predictor, path, predictor.model.inducing.shape[1])


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
    width, title = predictor.model.inducing.shape[1], described(predictor)
    write_onnx(model_answers, predictor, path, width, title)


def write_stablehlo(
    answers: Answers, predictor: Predictor, path: Place, width: int
) -> None:
    """Writes answers for rows of so many inputs as `to_stablehlo` does."""
    try:
        import flatbuffers as _  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "to_stablehlo needs the package flatbuffers: pip install "
            '"natgrad[stablehlo]"'
        ) from error
    shape = (*export.symbolic_shape(ROWS), width)
    rows = jax.ShapeDtypeStruct(shape, predictor.weights.dtype)
    function = jax.jit(lambda x: by_row(answers)(predictor, x))
    exported = export.export(function, platforms=PLATFORMS)(rows)
    Path(path).write_bytes(exported.serialize())


def write_onnx(
    answers: Answers,
    predictor: Predictor,
    path: Place,
    width: int,
    title: str,
    names: Sequence[str] = (),
    classes: np.ndarray | None = None,
) -> None:
    """Writes answers as `to_onnx` does, and the label at "class_index" if it has one.

    `names` are those of the inputs, if they have names.
    """
    try:
        from natgrad._export.onnx_graph import onnx_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'to_onnx needs the package onnx: pip install "natgrad[onnx]"'
        ) from error
    arrays, rest = eqx.partition(predictor, eqx.is_array)
    function = lambda arrays, x: by_row(answers)(eqx.combine(arrays, rest), x)
    program = program_of(function, arrays, width, predictor.weights.dtype)
    if classes is not None:
        program = looked_up(program, "label", "class_index", classes)
    model = onnx_model(program, title, metadata.version("natgrad"), names)
    Path(path).write_bytes(model.SerializeToString())


def by_row(answers: Answers) -> Answers:
    """Answers for several rows, of which only batching rules see the number."""
    return jax.vmap(answers, in_axes=(None, 0))


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
        f"{type(model.likelihood).__name__}. It has {len(model.inducing)} inducing "
        "inputs."
    )


def _name(kernel: AbstractKernel) -> str:
    is_kernel = lambda node: node is not kernel and isinstance(node, AbstractKernel)
    nodes = jax.tree.leaves(kernel, is_leaf=is_kernel)
    inner = ", ".join(_name(node) for node in nodes if is_kernel(node))
    return type(kernel).__name__ + (f"({inner})" if inner else "")
