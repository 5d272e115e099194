"""The state of a model that keeps learning, as one file; it holds rows."""

import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natgrad import _container as container
from natgrad.data._batch import Batch
from natgrad.errors import CorruptFileError, IncompatibleFileError, NatgradError
from natgrad.gp._carried import OldSites, sites_of
from natgrad.gp._dual import Sites
from natgrad.gp._files import from_bytes, to_bytes
from natgrad.gp._fit import check
from natgrad.gp._online import Online


SCHEMA, VERSION = "natgrad.gp.Online", 2
NUMBERS = ("num_data", "lost", "count", "learned_at", "unsampled")
OLD = ("linear", "precision", "inverse", "inducing", "mean")
SETTINGS = ("num_inducing", "memory", "half_life", "seed")


def save(
    online: Online, path: str | os.PathLike[str], metadata: dict[str, Any]
) -> None:
    """Writes all that `load` needs, atomically."""
    document = {"schema": SCHEMA, "version": VERSION, "metadata": metadata}
    document |= {name: getattr(online, name) for name in (*NUMBERS, *SETTINGS)}
    model = to_bytes(online.model)[0]
    arrays = {"model": np.frombuffer(model, np.uint8), "keys": online.keys}
    sites, z, mean = online.old
    old = zip(OLD, (*sites, z, mean), strict=True)
    arrays |= {f"old.{name}": np.asarray(value) for name, value in old}
    if online.rows is not None:
        x, y, weight, columns = online.rows
        arrays |= {"rows.x": x, "rows.y": y, "rows.weight": weight}
        arrays |= {f"rows.columns.{name}": each for name, each in columns.items()}
    container.write(path, document, arrays)


def load(path: str | os.PathLike[str]) -> tuple[Online, dict[str, Any]]:
    """What was saved, and the metadata with it."""
    document, arrays = container.read(path)
    if (document.get("schema"), document.get("version")) != (SCHEMA, VERSION):
        raise IncompatibleFileError(f"{path} is not a state of natgrad update")
    try:
        return _restored(document, arrays), dict(document["metadata"])
    except (KeyError, TypeError, ValueError, NatgradError) as error:
        raise CorruptFileError(
            f"{path} is damaged ({error}); delete it to begin anew"
        ) from error


def _restored(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> Online:
    model = from_bytes(arrays["model"].tobytes())
    like: Any = jax.eval_shape(lambda: sites_of(model))
    found = {name: arrays[f"old.{name}"] for name in OLD}
    expected: dict[str, Any] = dict(
        zip(OLD, (*like.sites, like.inducing, like.mean), strict=True)
    )
    for name, value in found.items():
        shape = expected[name].shape
        if value.shape != shape or not np.isfinite(value).all():
            raise ValueError(f"old.{name} is not {list(shape)} finite numbers")
    numbers = {name: document[name] for name in NUMBERS}
    if not all(math.isfinite(number) and number >= 0 for number in numbers.values()):
        raise ValueError("a number is negative or not finite")
    rows = _rows(arrays)
    if rows is not None:
        check(model, rows, "rows")
        if len(arrays["keys"]) != len(rows.x):
            raise ValueError("keys and rows differ in number")
    linear, precision, inverse, z, mean = map(jnp.asarray, found.values())
    sites = Sites(linear, precision, inverse)
    return Online(
        model=model,
        old=OldSites(sites, z, mean),
        rows=rows,
        keys=arrays["keys"],
        **numbers,
        **{name: document[name] for name in SETTINGS},
    )


def _rows(arrays: dict[str, np.ndarray]) -> Batch | None:
    if "rows.x" not in arrays:
        return None
    start = "rows.columns."
    named = {k.removeprefix(start): a for k, a in arrays.items() if k.startswith(start)}
    return Batch(arrays["rows.x"], arrays["rows.y"], arrays["rows.weight"], named)
