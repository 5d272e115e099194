"""One file of JSON and arrays, read exactly as it was written or not at all.

    8 bytes    89 'N' 'G' 'M' 0D 0A 1A 0A
    4 bytes    version of this layout, little endian as all numbers
    32 bytes   SHA-256 of all that follows
    8 bytes    length of the JSON
    JSON       an object
    the rest   a safetensors block

The hash detects damage and not malice, for anyone can compute it. So everything is
bounded and checked before it is used, and nothing in a file is ever executed.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as safetensors_bytes

from natgrad._atomic import replacing
from natgrad._text import shown
from natgrad.errors import (
    CorruptFileError,
    IncompatibleFileError,
    InputError,
    NatgradError,
)


MAGIC = b"\x89NGM\r\n\x1a\n"
VERSION = 1
MAX_BYTES = 2**30
"""The largest file that is read by default."""
MAX_JSON, MAX_HEADER = 2**21, 2**20
"""Bytes of the JSON, and of the header of the arrays."""
MAX_ARRAYS = 4096
MAX_DEPTH = 256

_HASHED_FROM, _JSON_FROM = 44, 52
_TYPES = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
# The closing quote is optional, so that every character is looked at once.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def write(
    path: str | os.PathLike[str],
    document: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Writes a file whole, or leaves what was there as it was.

    The same contents give the same bytes.
    """
    parts = _parts(document, arrays)
    with replacing(path) as draft, open(draft, "wb") as file:
        for part in parts:
            file.write(part)


def read(
    path: str | os.PathLike[str],
    max_bytes: int = MAX_BYTES,
    expect_sha256: str | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document and the arrays of a file.

    `expect_sha256` is the hash of the file as a whole, known from elsewhere.
    """
    try:
        data = _contents(Path(path), max_bytes)
        if expect_sha256 is not None:
            found = hashlib.sha256(data).hexdigest()
            if found != expect_sha256.lower():
                raise CorruptFileError(
                    f"its SHA-256 is {found}; it should be {shown(expect_sha256)}"
                )
        return unpack(data)
    except NatgradError as error:
        raise type(error)(f"{path}: {error}") from None


def pack(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file."""
    return b"".join(_parts(document, arrays))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document and the arrays in the bytes of a file."""
    length = _check_head(data[:_JSON_FROM], len(data))
    view = memoryview(data)
    if hashlib.sha256(view[_HASHED_FROM:]).digest() != data[12:_HASHED_FROM]:
        raise CorruptFileError("checksum mismatch: it is damaged")
    end = _JSON_FROM + length
    document = _parsed(bytes(view[_JSON_FROM:end]), "its JSON")
    return document, _arrays(view[end:])


def _parts(
    document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[bytes, ...]:
    text = _json(document)
    block = _block(arrays)
    size = len(text).to_bytes(8, "little")
    digest = hashlib.sha256()
    for part in (size, text, block):
        digest.update(part)
    version = VERSION.to_bytes(4, "little")
    return MAGIC, version, digest.digest(), size, text, block


def _json(document: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(
            document,
            sort_keys=True,
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        ).encode()
        if len(text) > MAX_JSON:
            raise ValueError(f"it takes {len(text)} bytes, and may take {MAX_JSON}")
        if _parsed(text, "it") != document:
            raise ValueError("keys should be strings, and sequences lists")
    except (CorruptFileError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the document cannot be written as JSON: {error}") from error
    return text


def _block(arrays: Mapping[str, np.ndarray]) -> bytes:
    if len(arrays) > MAX_ARRAYS:
        raise InputError(f"there are {len(arrays)} arrays; a file holds {MAX_ARRAYS}")
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES.values():
            raise InputError(
                f"{name} is an array of {array.dtype}; a file holds numbers of "
                f"{', '.join(_TYPES.values())}"
            )
    # It writes numbers as they lie in memory, whichever way that is.
    block = safetensors_bytes(
        {
            name: np.asarray(array, array.dtype.newbyteorder("="), order="C")
            for name, array in arrays.items()
        }
    )
    if int.from_bytes(block[:8], "little") > MAX_HEADER:
        raise InputError(f"the names of {len(arrays)} arrays are too long for a file")
    return block


def _contents(path: Path, max_bytes: int) -> bytes:
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise CorruptFileError("it is not a file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise CorruptFileError(
                f"it has {size} bytes, and max_bytes is {max_bytes}; if it is yours, "
                "let that be more"
            )
        _check_head(file.read(_JSON_FROM), size)
        file.seek(0)
        data = file.read(size)
    if len(data) != size:
        raise CorruptFileError("it became shorter while it was read")
    return data


def _check_head(head: bytes, size: int) -> int:
    """The length of the JSON; raises an error if the head is invalid."""
    if not head.startswith(MAGIC):
        raise CorruptFileError(
            f"it is not a file of natgrad: it starts with {shown(head[:8])}"
        )
    if len(head) < _JSON_FROM:
        raise CorruptFileError(f"it is cut short: it has {size} bytes")
    version = int.from_bytes(head[8:12], "little")
    if version != VERSION:
        raise IncompatibleFileError(
            f"its layout is of version {version}; this natgrad reads version {VERSION}"
        )
    length = int.from_bytes(head[_HASHED_FROM:], "little")
    if length > min(MAX_JSON, size - _JSON_FROM):
        raise CorruptFileError(
            f"its JSON would have {length} bytes, in a file of {size}; at most "
            f"{MAX_JSON} are allowed"
        )
    return length


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    """A JSON object of no surprises: no key twice, all numbers finite, not deep."""
    if (depth := _depth(text)) > MAX_DEPTH:
        raise CorruptFileError(
            f"{name} is nested {depth} levels deep; at most {MAX_DEPTH} are allowed"
        )
    try:
        document = json.loads(
            text.decode(),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=_real,
        )
        if b"\\u" in text:
            # Half a surrogate pair is a string to Python, but not one it can print.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise CorruptFileError(f"{name} is {shown(document)}; it should be an object")
    return document


def _depth(text: bytes) -> int:
    marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    opened = np.isin(marks, list(b"[{")).astype(np.int32)
    closed = np.isin(marks, list(b"]}")).astype(np.int32)
    return int(np.cumsum(opened - closed).max(initial=0))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} is there twice")
        found[name] = value
    return found


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"{shown(text)} is too large a number")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is not a finite number")
    return number


def _arrays(block: memoryview) -> dict[str, np.ndarray]:
    length = int.from_bytes(block[:8], "little")
    if len(block) < 8 or length > min(MAX_HEADER, len(block) - 8):
        raise CorruptFileError(
            f"the header of its arrays would have {length} bytes, in a block of "
            f"{len(block)}; at most {MAX_HEADER} are allowed"
        )
    header = _parsed(bytes(block[8 : 8 + length]), "the header of its arrays")
    if len(header) > MAX_ARRAYS:
        raise CorruptFileError(
            f"it has {len(header)} arrays; at most {MAX_ARRAYS} are allowed"
        )
    data = block[8 + length :]
    spans = sorted(_span(name, entry) for name, entry in header.items())
    ends = [0, *(end for _, end in spans)]
    if ends[:-1] != [start for start, _ in spans] or ends[-1] != len(data):
        raise CorruptFileError("its arrays do not fill it one after the other")
    return {name: _array(name, entry, data) for name, entry in header.items()}


def _span(name: str, entry: Any) -> tuple[int, int]:
    """Where an array starts and ends; raises an error if its entry is invalid."""
    keys = {"dtype", "shape", "data_offsets"}
    if name == "__metadata__" or not isinstance(entry, dict) or entry.keys() != keys:
        raise CorruptFileError(f"its array {shown(name)} is {shown(entry)}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise CorruptFileError(f"its array {shown(name)} is of type {shown(kind)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise CorruptFileError(
            f"its array {shown(name)} has shape {shown(shape)} and offsets "
            f"{shown(offsets)}"
        )
    size = math.prod(shape) * np.dtype(_TYPES[kind]).itemsize
    # An array of no numbers, too, must have a size that can be counted.
    if offsets[1] - offsets[0] != size or math.prod(n or 1 for n in shape) >= 2**48:
        raise CorruptFileError(
            f"its array {shown(name)} has shape {shown(shape)}, which is {size} bytes, "
            f"between {offsets[0]} and {offsets[1]}"
        )
    return offsets[0], offsets[1]


def _are_sizes(numbers: Any) -> bool:
    if not isinstance(numbers, list) or len(numbers) > 32:
        return False
    return all(type(number) is int and number >= 0 for number in numbers)


def _array(name: str, entry: dict[str, Any], data: memoryview) -> np.ndarray:
    start, end = entry["data_offsets"]
    dtype = np.dtype(_TYPES[entry["dtype"]])
    raw = data[start:end]
    if dtype.kind == "b" and (np.frombuffer(raw, np.uint8) > 1).any():
        raise CorruptFileError(f"its array {shown(name)} is of neither true nor false")
    stored = np.frombuffer(raw, dtype.newbyteorder("<"))
    # A copy: the file's own bytes lie anywhere, and are not to be written to.
    return stored.astype(dtype).reshape(entry["shape"])
