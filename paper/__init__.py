"""The experiments of Salimbeni, Eleftheriadis and Hensman (2018), from one command.

    python -m paper fig1 --quick --out results

Each figure is a module with `configs`, the runs it needs; `run`, which makes one of
them; and `draw`, which draws the pictures. `text` has the paper's statements that have
no figure.
"""

import tempfile
import time
from collections.abc import Iterable
from importlib import import_module, util
from pathlib import Path
from typing import Any

from natgrad.errors import InputError
from paper.store import Config, Store, replacing


FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "readings", "text")
NAMES = (*FIGURES, "claims", "all")
PACKAGES = ("pandas", "pyarrow", "matplotlib")


def reproduce(name: str, folder: Path, is_quick: bool = False) -> list[Path]:
    """Makes the missing runs of a figure and draws it; returns all files written.

    `claims` compares the paper's claims with the results; `all` is every figure and
    then the claims. The files of quick forms have names of their own.
    """
    if name not in NAMES:
        raise InputError(f"no experiment {name!r}; choose one of {', '.join(NAMES)}")
    figures = [figure for figure in FIGURES if name in (figure, "all")]
    check_packages()
    check_data(figures, folder, is_quick)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for figure in figures:
        table = compute(figure, folder, is_quick)
        written.append(store_of(figure, folder, is_quick).path)
        written += draw(figure, table, folder, is_quick)
    if name in ("claims", "all"):
        text = module("claims").table(folder, is_quick)
        written.append(_write(folder / f"claims{_end(is_quick)}.md", text))
    return written


def check_data(figures: Iterable[str], folder: Path, is_quick: bool = False) -> None:
    """Raises if a missing run needs a data set that is not on this machine."""
    from paper import tables

    needed: dict[str, None] = {}
    for name in figures:
        store = store_of(name, folder, is_quick)
        missing = store.missing(module(name).configs(is_quick, store))
        needed |= dict.fromkeys(
            config["data"] for config in missing if "data" in config
        )
    absent = [name for name in needed if not tables.path(name).is_file()]
    if absent:
        first, *others = absent
        also = f"; also missing: {', '.join(others)}" if others else ""
        raise InputError(tables.absent(first) + also)


def check_packages() -> None:
    """Raises if a package is missing that all experiments need."""
    for package in PACKAGES:
        if util.find_spec(package) is None:
            raise ImportError(
                f'the experiments need {package}: pip install "natgrad[cli]" pandas'
            )


def compute(name: str, folder: Path, is_quick: bool = False) -> Any:
    """Makes the missing runs of a figure; returns the table of all its runs.

    Later runs may depend on earlier results, so `configs` is called until nothing is
    missing.
    """
    import jax
    from tqdm.auto import tqdm

    store, experiment = store_of(name, folder, is_quick), module(name)
    while True:
        configs = list(experiment.configs(is_quick, store))
        missing = store.missing(configs)
        if not missing:
            return store.of(configs)
        there: Any = {"initial": len(configs) - len(missing), "total": len(configs)}
        with tqdm(missing, desc=name, dynamic_ncols=True, **there) as bar:
            for config in bar:
                bar.set_postfix_str(described(config))
                began = time.monotonic()
                with jax.enable_x64(True):
                    columns = experiment.run(config)
                store.put(config, columns, time.monotonic() - began)


def draw(name: str, table: Any, folder: Path, is_quick: bool = False) -> list[Path]:
    """Draws a figure; each picture moves into place once it is complete."""
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        drawn = module(name).draw(table, Path(draft))
        named = lambda path: f"{path.stem}{_end(is_quick)}{path.suffix}"
        return [path.replace(folder / named(path)) for path in drawn]


def module(name: str) -> Any:
    """The experiment of a figure, or the claims."""
    return import_module(f"paper.{name}")


def store_of(name: str, folder: Path, is_quick: bool = False) -> Store:
    """The results of a figure; quick forms have a file of their own."""
    return Store(folder / f"{name}{_end(is_quick)}.parquet")


def described(config: Config) -> str:
    """A few words that identify a run."""
    names = (
        "what",
        "data",
        "likelihood",
        "split",
        "parameterization",
        "method",
        "rate",
    )
    values = [config.get(name) for name in names]
    return " ".join(str(value) for value in values if value is not None)


def _end(is_quick: bool) -> str:
    return "-quick" if is_quick else ""


def _write(path: Path, text: str) -> Path:
    with replacing(path) as draft:
        draft.write_text(text, "utf-8")
    return path
