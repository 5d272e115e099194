"""Results of runs, kept by what they are the results of."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from natgrad.errors import InputError


Config = dict[str, Any]
Columns = dict[str, list[Any]]


class Store:
    """The finished runs of a figure: one Parquet file, in rows of all that is known.

    A run is known by the hash of its configuration, and is not made again if it is
    there; whatever changes in its configuration makes it another.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.table = self._read()

    def has(self, config: Config) -> bool:
        return not self.missing([config])

    def missing(self, configs: Iterable[Config]) -> list[Config]:
        there = set(self.table.run)
        return [config for config in configs if key(config) not in there]

    def of(self, configs: Iterable[Config]) -> Any:
        """The rows of some runs, as far as they are there."""
        wanted = {key(config) for config in configs}
        return self.table[self.table.run.isin(wanted)]

    def put(self, config: Config, columns: Columns, took: float) -> None:
        """Adds a run; the file is replaced at once or not at all."""
        import pandas

        from natgrad.data import _tables as tables

        made = {"run": key(config), "took": round(took, 2), "versions": versions()}
        rows = pandas.DataFrame(columns).assign(**config, **made)
        # Another process may have added runs to the file, or this one.
        others = self._read()
        others = others[others.run != made["run"]]
        parts = [others, rows] if len(others) else [rows]
        parts = [part.dropna(axis="columns", how="all") for part in parts]
        table = pandas.concat(parts, ignore_index=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tables.replacing(self.path) as draft:
            table.to_parquet(draft, compression="zstd", index=False)
        self.table = table

    def _read(self) -> Any:
        import pandas

        from natgrad.data import _tables as tables

        if not self.path.is_file():
            return pandas.DataFrame({"run": []})
        try:
            table = tables.read(self.path)
            tables.require(table.column_names, ["run", "took", "versions"])
        except InputError as error:
            raise InputError(
                f"{self.path} is no table of runs ({error}); if it is moved away, "
                "they are made again"
            ) from error
        return table.to_pandas()


def key(config: Config) -> str:
    """The hash of a configuration."""
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions() -> str:
    """Of what a result may depend on."""
    names = ("natgrad", "jax", "optax", "numpy", "scipy")
    found = {name: metadata.version(name) for name in names}
    all_of_them = {"python": platform.python_version(), **found}
    return ", ".join(f"{name} {version}" for name, version in all_of_them.items())
