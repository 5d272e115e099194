"""What one party sends to the others, as one file that may come from anyone."""

import os
from importlib import metadata as packages

import jax
import numpy as np

from natgrad import _container as container
from natgrad._container import shown
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError
from natgrad.gp._parties import PartySite, check_numbers


SCHEMA, VERSION = "natgrad.gp.PartySite", 1
KEYS = {"schema", "version", "natgrad", "model", "num_rows"}


def save_site(site: PartySite, path: str | os.PathLike[str]) -> None:
    """Writes the site of a party to one file, atomically.

    The file has the layout of a model file. It holds the numbers of the site, the
    number of rows and the hash of the model, and no rows.

    Raises:
        InputError: If the numbers of the site are not valid.
        CheckpointError: If the file cannot be written.

    >>> gp.save_site(gp.fit_site(model, (x, y)), "mine.site")
    >>> gp.load_site("mine.site").num_rows
    50
    """
    if not isinstance(site, PartySite):
        raise InputError(f"site is a {type(site).__name__}; it should be a PartySite")
    _check(site, "the site")
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "natgrad": packages.version("natgrad"),
        "model": site.model,
        "num_rows": site.num_rows,
    }
    arrays = {"linear": site.linear, "precision": site.precision}
    container.write(path, document, arrays)


def load_site(
    path: str | os.PathLike[str],
    expect_sha256: str | None = None,
    max_bytes: int = container.MAX_BYTES,
) -> PartySite:
    """Loads the site of a party, which may come from anyone.

    Loading runs no code from the file. `combine` checks that the site fits the model.
    `expect_sha256` and `max_bytes` are those of `load`.

    Raises:
        CorruptFileError: If the file is damaged or not what it claims to be.
        IncompatibleFileError: If this version or setup of natgrad cannot use it.

    >>> gp.save_site(gp.fit_site(model, (x, y)), "mine.site")
    >>> sites = {"mine.site": gp.load_site("mine.site")}
    >>> whole = gp.combine(model, sites).model
    """
    document, arrays = container.read(path, max_bytes, expect_sha256)
    schema, version = document.get("schema"), document.get("version")
    if schema != SCHEMA:
        raise IncompatibleFileError(
            f"{path}: it holds {shown(schema)}, and not {SCHEMA!r}"
        )
    if type(version) is not int or version != VERSION:
        raise IncompatibleFileError(
            f"{path}: it is of version {shown(version)}; natgrad "
            f"{packages.version('natgrad')} reads version {VERSION}"
        )
    if document.keys() != KEYS or arrays.keys() != {"linear", "precision"}:
        found = shown(sorted([*document, *arrays]))
        raise CorruptFileError(f"{path}: it has {found}, which is not a site")
    site = PartySite(
        arrays["linear"], arrays["precision"], document["num_rows"], document["model"]
    )
    try:
        _check(site, "the site")
    except InputError as error:
        raise CorruptFileError(f"{path}: {error}") from None
    if jax.dtypes.canonicalize_dtype(site.linear.dtype) != site.linear.dtype:
        raise IncompatibleFileError(
            f"{path}: it is of {site.linear.dtype}, and JAX is set to 32 bits; call "
            'jax.config.update("jax_enable_x64", True) first'
        )
    return site


def _check(site: PartySite, name: str) -> None:
    """Raises an error unless a site is one of some model."""
    linear, precision, rows, mark = site
    is_real = all(part.dtype in (np.float32, np.float64) for part in site[:2])
    if not is_real or linear.dtype != precision.dtype:
        raise InputError(
            f"{name} is of {linear.dtype} and {precision.dtype}; both should be "
            "float32 or float64"
        )
    wanted = (*linear.shape, linear.shape[-1]) if linear.ndim else None
    if linear.ndim not in (1, 2) or precision.shape != wanted or not linear.size:
        raise InputError(
            f"{name} has shapes {list(linear.shape)} and {list(precision.shape)}; they "
            "should be [M] and [M, M], or [L, M] and [L, M, M]"
        )
    if type(mark) is not str or len(mark) != 64 or set(mark) - set("0123456789abcdef"):
        raise InputError(f"the model of {name} is {shown(mark)}; it should be a hash")
    if type(rows) is not int or not 0 <= rows < 2**53:
        raise InputError(f"{name} has {shown(rows)} rows; it should be a whole number")
    check_numbers(site, name)
