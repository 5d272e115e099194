"""Results of runs, stored under the hash of their configuration."""

import contextlib
import hashlib
import io
import json
import os
import platform
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from natgrad.errors import CheckpointError, InputError


Config = dict[str, Any]
Columns = dict[str, list[Any]]


class Store:
    """The finished runs of a figure, in one Parquet file.

    A run is identified by the hash of its configuration, and is not made twice. Any
    change of the configuration makes another run.
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
        """The rows of some runs, without those that are missing."""
        wanted = {key(config) for config in configs}
        return self.table[self.table.run.isin(wanted)]

    def put(self, config: Config, columns: Columns, took: float) -> None:
        """Adds a run; the file is replaced at once or not at all."""
        import pandas

        made = {"run": key(config), "took": round(took, 2), "versions": versions()}
        rows = pandas.DataFrame(columns).assign(**config, **made)
        # Another process may have added runs to the file, or this one.
        others = self._read()
        others = others[others.run != made["run"]]
        parts = [others, rows] if len(others) else [rows]
        parts = [part.dropna(axis="columns", how="all") for part in parts]
        table = pandas.concat(parts, ignore_index=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as draft:
            table.to_parquet(draft, compression="zstd", index=False)
        self.table = table

    def _read(self) -> Any:
        import pandas

        if not self.path.is_file():
            return pandas.DataFrame({"run": []})
        try:
            # At once: read by its path, it may be replaced between two reads.
            table = pandas.read_parquet(io.BytesIO(self.path.read_bytes()))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path} cannot be read ({error}); move it away to rerun its runs"
            ) from error
        if not {"run", "took", "versions"} <= set(table.columns):
            raise InputError(
                f"{self.path} is not a table of runs: it should have the columns run, "
                "took and versions"
            )
        return table


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft to write to; it replaces the file once it is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise CheckpointError(f"{path} could not be written: {why}") from error
    finally:
        draft.unlink(missing_ok=True)


def key(config: Config) -> str:
    """The hash of a configuration."""
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions() -> str:
    """The versions of what a result may depend on."""
    names = ("natgrad", "jax", "optax", "numpy", "scipy")
    found = {name: metadata.version(name) for name in names}
    all_of_them = {"python": platform.python_version(), **found}
    return ", ".join(f"{name} {version}" for name, version in all_of_them.items())
