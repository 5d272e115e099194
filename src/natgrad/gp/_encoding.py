"""A model as JSON and arrays, and back: its classes by name, its numbers as arrays."""

import collections.abc
import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from natgrad import linalg
from natgrad._container import shown
from natgrad._runtime.programs import filter_jit
from natgrad._text import brief
from natgrad.errors import IncompatibleFileError, InputError
from natgrad.families import gaussian
from natgrad.gp import kernels, likelihoods, means
from natgrad.gp._sparse import SparseGP
from natgrad.gp.kernels._base import Product, Sum
from natgrad.gp.likelihoods._base import is_column
from natgrad.gp.likelihoods._discrete import FixedEdges, LearnedEdges


MAX_PARTS = 1024
"""How many kernels, likelihoods and other parts a model in a file may have."""

Arrays = dict[str, np.ndarray]
Document = dict[str, Any]

# Classes that hold code, and what to write instead.
_ADVICE = {
    kernels.FromFunction: "a natgrad.gp.kernels.AbstractKernel",
    likelihoods.FromDistribution: "a natgrad.gp.likelihoods.AbstractQuadrature",
}


def _is_saved(kind: object) -> typing.TypeGuard[type[eqx.Module]]:
    return (
        isinstance(kind, type)
        and issubclass(kind, eqx.Module)
        and not kind.__name__.startswith("Abstract")
        and not issubclass(kind, tuple(_ADVICE))
    )


# A class is registered by its public name: files name it by module and class.
OWN: dict[str, type[eqx.Module]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": kind
    for module in (kernels, likelihoods, means, gaussian, linalg)
    for name, kind in vars(module).items()
    if _is_saved(kind)
}
OWN |= {
    "SparseGP": SparseGP,
    "kernels.Sum": Sum,
    "kernels.Product": Product,
    "likelihoods.FixedEdges": FixedEdges,
    "likelihoods.LearnedEdges": LearnedEdges,
}
_NAMES = {kind: name for name, kind in OWN.items()}

# Numbers that set how much is computed, and that no constructor bounds.
_RANGES = {
    "nodes": range(1, 2**10 + 1),
    "draws": range(2, 2**16 + 1, 2),  # half of them mirror the other half
    "degree": range(1, 2**10 + 1),
    "seed": range(2**63),
}


class Source(NamedTuple):
    """What a model is made from: arrays not taken yet, and classes by their names."""

    arrays: Arrays
    classes: dict[str, type[eqx.Module]]


def described(value: Any, where: str, source: Source) -> Any:
    """A value as JSON, its arrays and its foreign classes put into `source`."""
    if isinstance(value, np.generic):
        value = value.item()
    if _is_plain(value) and not isinstance(value, tuple):
        return value
    if type(value) is tuple:
        parts = enumerate(value)
        return [described(part, f"{where}.{i}", source) for i, part in parts]
    if isinstance(value, np.ndarray | jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            raise InputError(f"{where} is an array of {value.dtype}, not of numbers")
        source.arrays[where] = array = np.asarray(value)
        return {"dtype": array.dtype.name, "shape": list(array.shape)}
    if isinstance(value, eqx.Module):
        fields = {"class": _name(value, where, source)}
        for field in dataclasses.fields(value):
            if is_column(field) and getattr(value, field.name) is not None:
                raise InputError(
                    f"{where}.{field.name} is a column of a row; save the likelihood "
                    "without it"
                )
        for name in _fields(type(value)):
            at = f"{where}.{name}"
            fields[name] = described(getattr(value, name), at, source)
        return fields
    if where == "model.log_prior":
        raise InputError(
            "the model has a log_prior, and a function cannot go into a file; it is "
            "for training only: save dataclasses.replace(model, log_prior=None)"
        )
    if callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        raise InputError(
            f"{where} is the function {name}, and a function cannot go into a file; "
            "write a class of your own that calls it by its name in a method"
        )
    raise InputError(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}; a file "
        "holds arrays, numbers, strings, None, and tuples and equinox modules of them"
    )


def _name(value: eqx.Module, where: str, source: Source) -> str:
    """What a class is called in files."""
    kind = type(value)
    if kind in _NAMES:
        return _NAMES[kind]
    for base, instead in _ADVICE.items():
        if isinstance(value, base):
            raise InputError(
                f"{where} is a {kind.__name__}, which holds code; a file cannot store "
                f"code: write {instead} of your own"
            )
    name = f"custom.{kind.__name__}"
    if source.classes.setdefault(name, kind) is not kind:
        raise InputError(
            f"{where} and another part of the model are of different classes that are "
            f"both called {kind.__name__}; a file tells them by their names"
        )
    return name


def restored(
    document: Document, arrays: Arrays, classes: Mapping[str, type[eqx.Module]]
) -> SparseGP:
    for name, array in arrays.items():
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise IncompatibleFileError(
                f"{shown(name)} is of {array.dtype}, and JAX is set to 32 bits; call "
                'jax.config.update("jax_enable_x64", True) first'
            )
    if (parts := json.dumps(document["model"]).count('"class"')) > MAX_PARTS:
        raise InputError(f"its model has {parts} parts; at most {MAX_PARTS} can be")
    source = Source(arrays, {**classes, **OWN})
    try:
        model = _value(document["model"], "model", source)
    except RecursionError:
        raise InputError("its model is nested too deeply") from None
    if not isinstance(model, SparseGP):
        raise InputError(f"it holds a {type(model).__name__}; it should be a SparseGP")
    if arrays:
        raise InputError(f"it has unexpected arrays: {shown(sorted(arrays))}")
    size, latents = len(model.inducing), model.likelihood.latents
    try:
        # A user's own kernel may leave the promotion of types and ranks to JAX.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            jax.eval_shape(model.kernel, model.inducing, model.inducing)
        shape = jax.eval_shape(model.mean, model.inducing).shape
        is_sound = _is_sound(model.posterior)
    except Exception as error:  # of arrays that do not fit, or of a user's own class
        raise InputError(f"its model does not fit together: {brief(error)}") from error
    if shape not in ((size,), (latents, size)):
        raise InputError(
            f"model.mean is of shape {list(shape)} at {size} rows; the likelihood has "
            f"{latents or 'one'} latent function(s)"
        )
    if not is_sound:
        raise InputError("model.posterior has no finite positive definite covariance")
    return model


@filter_jit
def _is_sound(q: gaussian.AbstractGaussian) -> jax.Array:
    return q.is_inside().all() & jnp.isfinite(q.factor()).all()


def _value(node: Any, where: str, source: Source) -> Any:
    if isinstance(node, list):
        return tuple(
            _value(part, f"{where}.{i}", source) for i, part in enumerate(node)
        )
    if not isinstance(node, dict):
        return node
    return (_module if "class" in node else _array)(node, where, source)


def _array(node: dict[str, Any], where: str, source: Source) -> jax.Array:
    array = source.arrays.pop(where, None)
    if array is None:
        raise InputError(f"there is no array {shown(where)}, of {shown(node)}")
    if node != {"dtype": array.dtype.name, "shape": list(array.shape)}:
        raise InputError(
            f"{shown(where)} is of {array.dtype} and shape {list(array.shape)}; it "
            f"should be {shown(node)}"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{shown(where)} has numbers that are not finite")
    return jnp.asarray(array)


def _module(node: dict[str, Any], where: str, source: Source) -> eqx.Module:
    name = node["class"]
    kind = source.classes.get(name) if isinstance(name, str) else None
    if kind is None:
        custom = isinstance(name, str) and name.startswith("custom.")
        yours = f"; load it with custom={{{shown(name[7:])}: ...}}" if custom else ""
        raise IncompatibleFileError(
            f"{shown(where)} is of class {shown(name)}, which is not known{yours}"
        )
    fields = _fields(kind)
    if node.keys() != {"class", *fields}:
        raise InputError(
            f"{shown(where)} has {shown(sorted(node))}; {name} has {sorted(fields)}"
        )
    values = {}
    for field, is_static in fields.items():
        at = f"{where}.{field}"
        value = values[field] = _value(node[field], at, source)
        hint = hints(kind).get(field, Any)
        if not _fits(value, hint) or (is_static and not _is_plain(value)):
            raise InputError(
                f"{shown(at)} is {shown(node[field])}; {name} does not take that"
            )
    try:
        if getattr(kind, "file_fields", None) is not None:
            return kind(**values)
        module = object.__new__(kind)
        none = {field.name: None for field in dataclasses.fields(kind)}
        for field_name, value in (none | values).items():
            object.__setattr__(module, field_name, value)
        if kind not in _NAMES or not _check_values(kind, values):
            for base in kind.__mro__:
                if "__check_init__" in vars(base):
                    vars(base)["__check_init__"](module)
    except Exception as error:  # a check is free in what it raises
        raise InputError(f"{shown(where)}: {brief(error)}") from error
    return module


def _fields(kind: type[eqx.Module]) -> dict[str, bool]:
    """What a file has of a class, and whether it is static."""
    if (names := getattr(kind, "file_fields", None)) is not None:
        return dict.fromkeys(names, False)
    static = lambda field: field.metadata.get("static", False)
    every = dataclasses.fields(kind)  # those of columns are None
    return {field.name: static(field) for field in every if not is_column(field)}


def _check_values(kind: type[eqx.Module], values: dict[str, Any]) -> bool:
    """Raises unless a constructor takes these fields, and makes the same of them.

    False if its arguments are not its fields, so that only `__check_init__` can tell.
    """
    for name, numbers in _RANGES.items():
        if name in values and values[name] not in numbers:
            raise InputError(f"{name} is {values[name]}; it should be in {numbers}")
    arguments = inspect.signature(kind).parameters
    given = dict(_given(*item, arguments) for item in values.items())
    if not given.keys() <= arguments.keys():
        return False
    made = kind(**given)
    for name, value in values.items():
        if isinstance(value, jax.Array):
            other = getattr(made, name)
            if (value.shape, value.dtype) != (other.shape, other.dtype):
                raise InputError(
                    f"{name} is of {value.dtype} and shape {list(value.shape)}; it "
                    f"should be of {other.dtype} and {list(other.shape)}"
                )
    return True


def _given(name: str, value: Any, arguments: Mapping[str, Any]) -> tuple[str, Any]:
    """A field as the constructor takes it, which may not be as its logarithm."""
    if name in arguments or not name.startswith(("log_", "logit_")):
        return name, value
    if name.startswith("logit_"):
        return name.removeprefix("logit_"), expit(np.asarray(value))
    with np.errstate(over="ignore", under="ignore"):  # the constructor will refuse it
        return name.removeprefix("log_"), np.exp(np.asarray(value))


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # a user's annotations may be of names that are nowhere
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as far as that can be known."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is tuple and inner[1:] == (...,):
        return type(value) is tuple and all(_fits(part, inner[0]) for part in value)
    if origin is collections.abc.Callable:
        return False
    if hint is float:
        return type(value) in (int, float)
    if hint in (bool, int, str):
        return type(value) is hint
    try:  # a class of modules, or a kind of array with a number of axes
        return isinstance(value, hint)
    except TypeError:  # no class, or one that does not tell, as Any
        return True
