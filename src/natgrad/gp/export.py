"""Predictions in files that run without natgrad: StableHLO, ONNX, NumPy."""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jax import export
from jaxtyping import Array

from natgrad.gp.flattening import program_of
from natgrad.gp.kernels import AbstractKernel
from natgrad.gp.numpy_code import numpy_code
from natgrad.gp.prediction import Predictor
from natgrad.gp.program import ROWS, Program


PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(predictor: Predictor, path: str | os.PathLike[str]) -> None:
    """Writes the predictions for any number of rows as a function of `jax.export`.

    It is read by `jax.export.deserialize`, and its `call` is from rows x to a dict of
    what there is of "latent_mean", "latent_variance", "mean", "variance" and
    "probabilities".
    """
    rows = jax.ShapeDtypeStruct(
        (*export.symbolic_shape(ROWS), predictor.model.inducing.shape[-1]),
        predictor.weights.dtype,
    )
    function = jax.jit(lambda x: _answers(predictor, x))
    exported = export.export(function, platforms=PLATFORMS)(rows)
    Path(path).write_bytes(exported.serialize())


def to_numpy(predictor: Predictor, path: str | os.PathLike[str]) -> None:
    """Writes the predictions as a Python file that imports NumPy alone.

    Its `predict` is from rows x to a dict, as that of `to_stablehlo`.
    """
    program = _program(predictor)
    text = f"{_about(predictor, program)}\n\nWritten by natgrad {_version()}."
    code = numpy_code(program, _title(predictor), text)
    Path(path).write_text(code, encoding="utf-8")


def to_onnx(predictor: Predictor, path: str | os.PathLike[str]) -> None:
    """Writes the predictions as an ONNX model; it takes the package `onnx`.

    The input is called "x", and the outputs as those of `to_stablehlo`.
    """
    try:
        from natgrad.gp.onnx_graph import onnx_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'to_onnx needs the package onnx: pip install "natgrad[onnx]"'
        ) from error
    program = _program(predictor)
    text = f"{_title(predictor)} {_about(predictor, program)}"
    model = onnx_model(program, text, _version())
    Path(path).write_bytes(model.SerializeToString())


def _answers(predictor: Predictor, x: Array) -> dict[str, Array]:
    """All that is predicted at each row of x.

    Row by row, so that nothing but the rules for batches sees the number of rows.
    """
    likelihood = predictor.model.likelihood

    # Functions of their own, whose names are in what is written.

    @jax.jit
    def latent(row: Array) -> tuple[Array, Array]:
        mean, var = predictor.latent_at(row[None, :])
        return mean[..., 0], var[..., 0]

    @jax.jit
    def moments(mean: Array, var: Array) -> tuple[Array, Array]:
        return likelihood.moments(mean, var)

    @jax.jit
    def probabilities(mean: Array, var: Array) -> Array:
        return likelihood.probabilities(mean, var)

    def at(row: Array) -> dict[str, Array]:
        mean, var = latent(row)
        answers = {"latent_mean": mean, "latent_variance": var}
        if _is_there(moments, mean, var):
            answers["mean"], answers["variance"] = moments(mean, var)
        if _is_there(probabilities, mean, var):
            answers["probabilities"] = probabilities(mean, var)
        return answers

    return jax.vmap(at)(x)


def _is_there(function: Any, mean: Array, var: Array) -> bool:
    try:
        jax.eval_shape(function, mean, var)
    except (NotImplementedError, AttributeError):
        # A distribution of another library may lack the attribute itself.
        return False
    return True


def _program(predictor: Predictor) -> Program:
    arrays, rest = eqx.partition(predictor, eqx.is_array)
    function = lambda arrays, x: _answers(eqx.combine(arrays, rest), x)
    width = predictor.model.inducing.shape[-1]
    return program_of(function, arrays, width, predictor.weights.dtype)


def _version() -> str:
    return metadata.version("natgrad")


def _title(predictor: Predictor) -> str:
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


def _about(predictor: Predictor, program: Program) -> str:
    size, width = predictor.model.inducing.shape
    shapes = {
        key: ", ".join(["N", *map(str, value.shape[1:])])
        for key, value in program.outputs.items()
    }
    answers = "\n".join(f"    {key}: [{shape}]" for key, shape in shapes.items())
    return (
        f"It has {size} inducing inputs, in {program.x.dtype.name}. "
        f"From N rows of {width} inputs, x: [N, {width}], it predicts\n\n{answers}"
    )
