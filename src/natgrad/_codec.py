"""Any record as a file and back: bounded, checked, and of a closed list of classes.

A record is an equinox module, a frozen dataclass or a named tuple. Its numbers go into
arrays and the rest into JSON. A module is named by its class, out of a list that the
reader has. Reading makes nothing else, and imports and calls nothing by a name in the
file. What is made has passed the checks of its constructor.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata as packages
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from natgrad import _container as container
from natgrad._annotations import MaybeNaN, alternatives, fits, words
from natgrad._text import brief, shown
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError


VERSION = 2
"""The version of every kind of file; others are refused."""

MAX_PARTS = 1024
"""How many modules a file may have."""

Arrays = dict[str, np.ndarray]
Classes = Mapping[str, type]
Document = dict[str, Any]

# Numbers that set how much is computed, and that no constructor bounds.
_RANGES = {
    "nodes": range(1, 2**10 + 1),
    "draws": range(2, 2**16 + 1, 2),  # half of them mirror the other half
    "degree": range(1, 2**10 + 1),
    "seed": range(2**63),
}


class Source(NamedTuple):
    """Arrays not taken yet, natgrad's classes by their names, and a user's own."""

    arrays: Arrays
    known: Classes
    custom: dict[str, type]


class Format(NamedTuple):
    """A kind of file: its title, the name and class of its contents, and its classes.

    `check` raises if the contents do not fit together.
    """

    schema: str
    title: str
    field: str
    kind: Any
    classes: Classes = types.MappingProxyType({})
    check: Callable[[Any], None] = lambda value: None

    def document(
        self, value: Any, metadata: Mapping[str, Any] | None = None
    ) -> tuple[Document, Source]:
        """The contents of a file, which was seen to be read again."""
        if not fits(value, self.kind):
            raise InputError(
                f"{self.field} is a {type(value).__name__}; it should be "
                f"{words(self.kind)}"
            )
        source = Source({}, self.classes, {})
        document = {
            "schema": self.schema,
            "version": VERSION,
            "natgrad": packages.version("natgrad"),
            "metadata": {} if metadata is None else dict(metadata),
            self.field: described(value, self.field, source),
        }
        self.restored(document, dict(source.arrays), source.custom)
        return document, source

    def pack(self, value: Any) -> tuple[bytes, dict[str, type]]:
        """The bytes of a file, and the classes that `unpack` must be given."""
        document, source = self.document(value)
        return container.pack(document, source.arrays), source.custom

    def unpack(self, data: bytes, custom: Classes) -> Any:
        return self.restored(*container.unpack(data), custom)

    def write(
        self,
        path: str | os.PathLike[str],
        value: Any,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        document, source = self.document(value, metadata)
        container.write(path, document, source.arrays)

    def read(
        self,
        path: str | os.PathLike[str],
        custom: Classes | None = None,
        expect_sha256: str | None = None,
        max_bytes: int = container.MAX_BYTES,
    ) -> tuple[Any, dict[str, Any]]:
        """The contents of a file and its metadata."""
        classes = foreign(custom)
        document, arrays = container.read(path, max_bytes, expect_sha256)
        with self._naming(path, document):
            value = self.restored(document, arrays, classes)
        return value, document["metadata"]

    def read_metadata(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        document = container.read(path)[0]
        with self._naming(path, document):
            self._check_header(document)
        return document["metadata"]

    def restored(self, document: Document, arrays: Arrays, custom: Classes) -> Any:
        """The contents of a document; takes its arrays out of `arrays`."""
        self._check_header(document)
        node, name = document[self.field], self.field
        if (parts := json.dumps(node).count('"class"')) > MAX_PARTS:
            raise InputError(f"its {name} has {parts} parts; {MAX_PARTS} are allowed")
        try:
            value = restored(
                node, self.kind, name, Source(arrays, self.classes, {**custom})
            )
        except RecursionError:
            raise InputError(f"its {name} is nested too deeply") from None
        if arrays:
            raise InputError(f"it has unexpected arrays: {shown(sorted(arrays))}")
        self.check(value)
        return value

    def _check_header(self, document: Document) -> None:
        found = [document.get(name) for name in ("schema", "version")]
        if repr(found) != repr([self.schema, VERSION]):
            raise IncompatibleFileError(
                f"it is not {self.title} of version {VERSION}, which natgrad "
                f"{packages.version('natgrad')} reads; it says {shown(found)}"
            )
        keys = {"schema", "version", "natgrad", "metadata", self.field}
        if document.keys() != keys:
            raise InputError(f"it has {shown(sorted(document))}; it should have {keys}")
        if not isinstance(document["metadata"], dict):
            raise InputError(f"its metadata are {shown(document['metadata'])}")

    @contextlib.contextmanager
    def _naming(self, path: Any, document: Document) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise CorruptFileError(f"{path}: {error}") from None
        except IncompatibleFileError as error:
            author = f"written by natgrad {shown(document.get('natgrad'))}"
            raise IncompatibleFileError(f"{path}, {author}: {error}") from None


def registered(*modules: types.ModuleType) -> dict[str, type]:
    """The classes in some Python modules that a file may have, by their names in it."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and issubclass(kind, eqx.Module)
        and not kind.__name__.startswith("Abstract")
        and not hasattr(kind, "file_instead")
    }


def foreign(custom: Classes | None) -> dict[str, type]:
    """Classes of a user's own, by the names they have in files."""
    classes = {f"custom.{name}": kind for name, kind in (custom or {}).items()}
    for name, kind in classes.items():
        if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
            raise InputError(f"{name} is {kind}; it should be an equinox module")
    return classes


# Records as JSON and arrays


def to_json(record: Any, classes: Classes) -> Any:
    """A record without arrays as JSON."""
    return described(record, "", Source({}, classes, {}))


def from_json(node: Any, kind: Any, where: str, classes: Classes) -> Any:
    """The record that `to_json` wrote; `where` is what messages call it."""
    return restored(node, kind, where, Source({}, classes, {}))


def described(value: Any, where: str, source: Source, hint: Any = Any) -> Any:
    """A value as JSON, its arrays and its foreign classes put into `source`."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is float and not math.isfinite(value):
        if MaybeNaN in (hint, *typing.get_args(hint)):
            return None  # JSON has no NaN
        raise InputError(f"{where} is {value}; a file holds finite numbers")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        parts = enumerate(value)
        return [described(part, f"{where}.{i}", source) for i, part in parts]
    if type(value) is dict:
        return {k: described(v, f"{where}.{k}", source) for k, v in value.items()}
    if isinstance(value, np.ndarray | jax.Array):
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            raise InputError(f"{where} is an array of {value.dtype}, not of numbers")
        source.arrays[where] = array = np.asarray(value)
        return {"dtype": array.dtype.name, "shape": list(array.shape)}
    kind = type(value)
    if callable(value) and not isinstance(value, eqx.Module):
        raise InputError(
            f"{where} is the function {getattr(value, '__name__', kind.__name__)}, and "
            "a function cannot go into a file; write a class of your own that calls it "
            "by its name in a method"
        )
    if not _is_record(kind):
        raise InputError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}; a file holds arrays, "
            "numbers, strings, None, and tuples and equinox modules of them"
        )
    tag = _name(value, where, source)
    found = {} if tag is None else {"class": tag}
    for name, (hint, _, default) in fields(kind).items():
        part, at = getattr(value, name), f"{where}.{name}"
        if tag is not None and type(part) is type(default) and part == default:
            continue
        is_function = callable(part) and not isinstance(part, eqx.Module)
        if is_function and type(None) in alternatives(hint):
            raise InputError(
                f"{at} is a function, and a function cannot go into a file: save "
                f"dataclasses.replace({where}, {name}=None)"
            )
        found[name] = described(part, at, source, hint)
    return found


def restored(node: Any, hint: Any, where: str, source: Source) -> Any:
    """What `described` wrote, of the type that a hint says."""
    value = _value(node, hint, where, source)
    if not fits(value, hint):
        raise InputError(f"{where} is {shown(node)}; it should be {words(hint)}")
    return value


def _name(value: Any, where: str, source: Source) -> str | None:
    """What a class is called in files; None for a record that its place tells."""
    kind = type(value)
    for field in filter(_is_column, getattr(kind, "__dataclass_fields__", {}).values()):
        if getattr(value, field.name) is not None:
            raise InputError(
                f"{where}.{field.name} is a column of a row; save the likelihood "
                "without it"
            )
    for name, known in source.known.items():
        if known is kind:
            return name
    if not isinstance(value, eqx.Module):
        return None
    if (instead := getattr(kind, "file_instead", None)) is not None:
        raise InputError(
            f"{where} is a {kind.__name__}, which holds code; a file cannot store "
            f"code: write {instead} of your own"
        )
    name = f"custom.{kind.__name__}"
    if source.custom.setdefault(name, kind) is not kind:
        raise InputError(
            f"{where} and another part of the model are of different classes that are "
            f"both called {kind.__name__}; a file tells them by their names"
        )
    return name


def _value(node: Any, hint: Any, where: str, source: Source) -> Any:
    kinds = alternatives(hint)
    inner = {typing.get_origin(kind): typing.get_args(kind) for kind in kinds}
    if isinstance(node, list):
        each, *_ = inner.get(tuple, (Any,))
        return tuple(
            _value(part, each, f"{where}.{i}", source) for i, part in enumerate(node)
        )
    if not isinstance(node, dict):
        return node
    if dict in inner:
        _, each = inner[dict]
        return {k: _value(v, each, f"{where}.{k}", source) for k, v in node.items()}
    if "class" in node:
        return _named(node, where, source)
    for kind in filter(_is_record, kinds):
        if not issubclass(kind, eqx.Module) and kind not in source.known.values():
            return _made(kind, node, where, source)
    return _array(node, hint, where, source)


def _array(node: Document, hint: Any, where: str, source: Source) -> Any:
    """An array of JAX, or one of NumPy where the hint says that it may be."""
    array = source.arrays.pop(where, None)
    if array is None:
        raise InputError(f"there is no array {shown(where)}, of {shown(node)}")
    if node != {"dtype": array.dtype.name, "shape": list(array.shape)}:
        raise InputError(
            f"{shown(where)} is of {array.dtype} and shape {list(array.shape)}; it "
            f"should be {shown(node)}"
        )
    if hint is not Any and fits(array, hint):
        return array
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise IncompatibleFileError(
            f"{shown(where)} is of {array.dtype}, and JAX is set to 32 bits; call "
            'jax.config.update("jax_enable_x64", True) first'
        )
    if not np.isfinite(array).all():
        raise InputError(f"{shown(where)} has numbers that are not finite")
    return jnp.asarray(array)


def _named(node: Document, where: str, source: Source) -> Any:
    """A record of a class that the file names."""
    name = node["class"]
    known = isinstance(name, str) and {**source.custom, **source.known}.get(name)
    if not known:
        custom = isinstance(name, str) and name.startswith("custom.")
        yours = f"; load it with custom={{{shown(name[7:])}: ...}}" if custom else ""
        raise IncompatibleFileError(
            f"{shown(where)} is of class {shown(name)}, which is not known{yours}"
        )
    fields = {key: node[key] for key in node if key != "class"}
    return _made(known, fields, where, source, name in source.known)


def _made(
    kind: Any, node: Document, where: str, source: Source, is_own: bool = True
) -> Any:
    """A record of a class, from its fields."""
    values = _values(kind, node, where, source)
    try:
        if not issubclass(kind, eqx.Module) or hasattr(kind, "file_fields"):
            return kind(**values)
        module = object.__new__(kind)
        none = {field.name: None for field in dataclasses.fields(kind)}
        for name, value in (none | values).items():
            object.__setattr__(module, name, value)
        if not is_own or not _check_values(kind, values):
            for base in kind.__mro__:
                if "__check_init__" in vars(base):
                    vars(base)["__check_init__"](module)
    except Exception as error:  # a check is free in what it raises
        raise InputError(f"{shown(where)}: {brief(error)}") from error
    return module


def _values(kind: Any, node: Document, where: str, source: Source) -> dict[str, Any]:
    """The fields of a record, each of which is there and of its type."""
    known, values = fields(kind), {}
    if unknown := sorted(node.keys() - known.keys()):
        raise IncompatibleFileError(
            f"{shown(where)} has the unknown field {shown(unknown[0])}; a newer "
            "version of natgrad may know it"
        )
    for name, (hint, is_static, default) in known.items():
        at = f"{where}.{name}".lstrip(".")
        if name not in node:
            if default is dataclasses.MISSING or kind not in source.known.values():
                raise InputError(f"{where} has no {name}; it should be {words(hint)}")
            continue
        value = values[name] = _value(node[name], hint, at, source)
        if value is None and hint == MaybeNaN:
            values[name] = math.nan
        elif not fits(value, hint) or (is_static and not _is_plain(value)):
            raise InputError(
                f"{shown(at)} is {shown(node[name])}, which {kind.__name__} does not "
                f"take; it should be {words(hint)}"
            )
    return values


def _check_values(kind: Any, values: dict[str, Any]) -> bool:
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


# What classes and their annotations say


@functools.cache
def fields(kind: Any) -> dict[str, tuple[Any, bool, Any]]:
    """The fields that a file has of a record: hint, whether it is static, and default.

    A default is left out if the class of the record is named, as tables have many
    columns. A module has no defaults.
    """
    hints, missing = hints_of(kind), dataclasses.MISSING
    names = getattr(kind, "file_fields", getattr(kind, "_fields", None))
    if names is None:
        return {
            field.name: (
                hints.get(field.name, Any),
                field.metadata.get("static", False),
                missing if issubclass(kind, eqx.Module) else field.default,
            )
            for field in dataclasses.fields(kind)
            if not _is_column(field)
        }
    return {name: (hints.get(name, Any), False, missing) for name in names}


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # a user's annotations may be of names that are nowhere
        return {}


def _is_record(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return dataclasses.is_dataclass(kind) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )


def _is_column(field: dataclasses.Field) -> bool:
    """Whether a field is of a row, and None in a model."""
    return field.metadata.get("is_column", False)


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
