"""What tells whether a checkpoint is whole: the SHA-256 of all there is in it."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np


FORMAT = 1
MANIFEST = "natgrad.json"


class Damage(Exception):
    """Why a checkpoint is not whole."""


def content_digest(values: list[np.ndarray]) -> str:
    """The SHA-256 of the values themselves, whatever files they are kept in."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def file_digests(folder: Path) -> dict[str, list[Any]]:
    """The size and the SHA-256 of every file but the manifest."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[name] = [path.stat().st_size, digest]
    return found


def compare(written: dict[str, list[Any]], found: dict[str, list[Any]]) -> None:
    """Raises Damage if the files are not those that were written."""
    for name in sorted(written | found):
        if name not in found:
            raise Damage(f"its file {name} is missing")
        if name not in written:
            raise Damage(f"its file {name} was not there when it was saved")
        if written[name][0] != found[name][0]:
            sizes = f"{found[name][0]} bytes, of {written[name][0]} written"
            raise Damage(f"its file {name} has {sizes}")
        if written[name] != found[name]:
            raise Damage(f"its file {name} is not what was written, by its SHA-256")


def write(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes the manifest, and its own SHA-256 as the first line."""
    body = json.dumps(manifest).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    (folder / MANIFEST).write_bytes(digest + b"\n" + body)


def read(folder: Path) -> dict[str, Any]:
    """The manifest; raises Damage if it is not the one that was written."""
    try:
        digest, _, body = (folder / MANIFEST).read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise Damage(f"it has no {MANIFEST}, so it was never complete") from None
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise Damage(f"its {MANIFEST} is not what was written, by its SHA-256")
    manifest = json.loads(body)
    if manifest["format"] != FORMAT:
        raise Damage(f"it is of format {manifest['format']}; this is {FORMAT}")
    if str(manifest["step"]) != folder.name:
        raise Damage(f"it was saved as step {manifest['step']}")
    return manifest


def flush(path: Path) -> None:
    """Has the disk hold what was written to a file or a folder."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
