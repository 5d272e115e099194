"""The state of a model that keeps learning, as one file; it holds rows."""

import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from natgrad import _container as container
from natgrad.data._batch import Batch
from natgrad.errors import IncompatibleFileError
from natgrad.gp._carried import OldSites
from natgrad.gp._dual import Sites
from natgrad.gp._files import from_bytes, to_bytes
from natgrad.gp._learning import Online


SCHEMA, VERSION = "natgrad.gp.Online", 1
NUMBERS = ("num_data", "lost", "count", "learned_at")
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
    names = ("linear", "precision", "inverse", "inducing", "mean")
    old = zip(names, (*sites, z, mean), strict=True)
    arrays |= {f"old.{name}": np.asarray(value) for name, value in old}
    if online.rows is not None:
        x, y, weight = online.rows
        columns = y if isinstance(y, dict) else {"": y}
        arrays |= {"rows.x": x, "rows.weight": weight}
        arrays |= {f"rows.y.{name}": column for name, column in columns.items()}
    container.write(path, document, arrays)


def load(path: str | os.PathLike[str]) -> tuple[Online, dict[str, Any]]:
    """What was saved, and the metadata with it."""
    document, arrays = container.read(path)
    if (document.get("schema"), document.get("version")) != (SCHEMA, VERSION):
        raise IncompatibleFileError(f"{path} is not a state of natgrad update")
    take = lambda name: jnp.asarray(arrays[f"old.{name}"])
    sites = Sites(*map(take, ("linear", "precision", "inverse")))
    rows = None
    if "rows.x" in arrays:
        start = "rows.y."
        y: Any = {
            name.removeprefix(start): column
            for name, column in arrays.items()
            if name.startswith(start)
        }
        y = y[""] if list(y) == [""] else y
        rows = Batch(arrays["rows.x"], y, arrays["rows.weight"])
    online = Online(
        model=from_bytes(arrays["model"].tobytes()),
        old=OldSites(sites, take("inducing"), take("mean")),
        rows=rows,
        keys=arrays["keys"],
        **{name: document[name] for name in (*NUMBERS, *SETTINGS)},
    )
    return online, document["metadata"]
