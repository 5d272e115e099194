"""A model as one file: its classes by name, its numbers as arrays.

A file names classes out of a closed list and says what their fields are. Reading one
makes nothing else, and imports and calls nothing by a name in the file; what is made
has passed the checks of its constructor, as if a user had given its values.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata as packages
from typing import Any

import equinox as eqx

from natgrad import _container as container
from natgrad._container import shown
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError
from natgrad.gp._encoding import Arrays, Document, Source, described, restored
from natgrad.gp._sparse import SparseGP


SCHEMA, VERSION = "natgrad.gp.SparseGP", 1

# A file of version n, made one of version n + 1.
_UPGRADES: dict[int, Callable[[Document, Arrays], tuple[Document, Arrays]]] = {}


def save(model: SparseGP, path: str | os.PathLike[str]) -> None:
    """Writes a model to one file, atomically.

    natgrad saves a class of your own by its name; pass the class to `load` as `custom`.
    The same model gives the same bytes.

    Raises:
        InputError: If a part of the model cannot be saved.
        CheckpointError: If the file cannot be written.

    >>> gp.save(model, "model.natgrad")
    >>> gp.load("model.natgrad").inducing.shape
    (8, 1)
    """
    save_with_metadata(model, path, None)


def save_with_metadata(
    model: SparseGP,
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None,
) -> None:
    """What `save` does, with a dictionary of JSON values that are kept with it."""
    document, source = _document(model, metadata)
    container.write(path, document, source.arrays)


def to_bytes(model: SparseGP) -> tuple[bytes, dict[str, type]]:
    """What `save` would write, and the classes that `from_bytes` must be given."""
    document, source = _document(model, None)
    classes = {name.removeprefix("custom."): c for name, c in source.classes.items()}
    return container.pack(document, source.arrays), classes


def from_bytes(data: bytes, custom: Mapping[str, type] | None = None) -> SparseGP:
    """The model in the bytes of a file."""
    return restored(*_current(*container.unpack(data)), _foreign(custom))


def _document(
    model: SparseGP, metadata: Mapping[str, Any] | None
) -> tuple[Document, Source]:
    if not isinstance(model, SparseGP):
        raise InputError(f"model is a {type(model).__name__}; it should be a SparseGP")
    source = Source({}, {})
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "natgrad": packages.version("natgrad"),
        "metadata": {} if metadata is None else dict(metadata),
        "model": described(model, "model", source),
    }
    # What was saved can be loaded.
    restored(document, dict(source.arrays), source.classes)
    return document, source


def load(
    path: str | os.PathLike[str],
    custom: Mapping[str, type] | None = None,
    expect_sha256: str | None = None,
    max_bytes: int = container.MAX_BYTES,
) -> SparseGP:
    """Loads a model that this version of natgrad or an earlier one saved.

    `custom` maps names to classes of your own, such as `{"MyKernel": MyKernel}`.
    `expect_sha256` is the hash of the whole file, from a source you trust. Without it
    the file may come from anyone, but loading runs no code from it. natgrad refuses
    files larger than `max_bytes`.

    Raises:
        CorruptFileError: If the file is damaged or not what it claims to be.
        IncompatibleFileError: If this version or setup of natgrad cannot use it.

    >>> gp.save(model, "model.natgrad")
    >>> type(gp.load("model.natgrad").likelihood).__name__
    'Gaussian'
    """
    return load_with_metadata(path, custom, expect_sha256, max_bytes)[0]


def load_with_metadata(
    path: str | os.PathLike[str],
    custom: Mapping[str, type] | None = None,
    expect_sha256: str | None = None,
    max_bytes: int = container.MAX_BYTES,
) -> tuple[SparseGP, dict[str, Any]]:
    """What `load` and `read_metadata` give, from one reading of the file."""
    classes = _foreign(custom)
    document, arrays = container.read(path, max_bytes, expect_sha256)
    with _naming(path, document):
        document, arrays = _current(document, arrays)
        return restored(document, arrays, classes), document["metadata"]


def _foreign(custom: Mapping[str, type] | None) -> dict[str, type[eqx.Module]]:
    """Classes of a user's own, by the names they have in files."""
    classes = {f"custom.{name}": kind for name, kind in (custom or {}).items()}
    for name, kind in classes.items():
        if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
            raise InputError(f"{name} is {kind}; it should be an equinox module")
    return classes


def read_metadata(
    path: str | os.PathLike[str],
    max_bytes: int = container.MAX_BYTES,
    expect_sha256: str | None = None,
) -> dict[str, Any]:
    """What `save_with_metadata` kept with a model; the errors are those of `load`."""
    document, arrays = container.read(path, max_bytes, expect_sha256)
    with _naming(path, document):
        return _current(document, arrays)[0]["metadata"]


@contextlib.contextmanager
def _naming(path: Any, document: Document) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise CorruptFileError(f"{path}: {error}") from None
    except IncompatibleFileError as error:
        author = f"written by natgrad {shown(document.get('natgrad'))}"
        raise IncompatibleFileError(f"{path}, {author}: {error}") from None


def _current(document: Document, arrays: Arrays) -> tuple[Document, Arrays]:
    """What is in a file, as this version of natgrad would have written it."""
    schema, version = document.get("schema"), document.get("version")
    if schema != SCHEMA:
        raise IncompatibleFileError(f"it holds {shown(schema)}, and not {SCHEMA!r}")
    if type(version) is not int or version < 1:
        raise InputError(f"its version is {shown(version)}; it should be 1 or more")
    if version > VERSION:
        raise IncompatibleFileError(
            f"it is of version {version}; natgrad {packages.version('natgrad')} reads "
            f"versions up to {VERSION}, and a newer one will read it"
        )
    for old in range(version, VERSION):
        document, arrays = _UPGRADES[old](document, arrays)
    keys = {"schema", "version", "natgrad", "metadata", "model"}
    if document.keys() != keys:
        raise InputError(f"it has {shown(sorted(document))}; it should have {keys}")
    if not isinstance(document["metadata"], dict):
        raise InputError(f"its metadata are {shown(document['metadata'])}")
    return document, arrays
