"""A run as data: all settings that train a model again, in a TOML file."""

import dataclasses
import json
import os
import tomllib
import typing
from pathlib import Path
from typing import Annotated, Any

from natgrad._annotations import LIMIT, SEED, Positive, Rule, require
from natgrad._registry import COLUMNS, KERNELS, LIKELIHOODS
from natgrad._text import naming, require_choice
from natgrad.errors import InputError


NULLS = ("error", "drop", "mean", "indicator")
"""What may be done about nulls."""

FILLED = ("mean", "indicator")
"""Those that put a number in the place of a null."""

PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""The periods of dates that may be inputs, in days."""

NUMBERS = ("num_inducing", "steps", "batch_size")
"""Whole numbers that may be "auto"."""

Limit = Annotated[int | str, LIMIT]
Whole = Annotated[int, Rule(lambda number: number > 0, "a whole number above 0")]
Names = Annotated[tuple[str, ...], Rule(lambda _: True, "a list of names")]


@dataclasses.dataclass(frozen=True)
class Run:
    """What was trained on what, and how; `sha256` is that of the file of data.

    `inputs` are by default all columns but the target and `columns`, which come with
    the target: "exposure=years", "trials=n". "auto" means what it does for
    the estimators; natgrad also guesses the `likelihood` from the target, and on disk a
    batch has 1024 rows. A data set on disk is read in `shards`, equally many for each
    process; `sha256` is then that of its index.
    """

    data: str
    target: str
    inputs: Names | None = None
    columns: tuple[str, ...] | None = None
    nulls: str = "indicator"
    date_periods: tuple[str, ...] = ()
    sha256: str | None = None
    likelihood: str = "auto"
    kernel: str = "auto"
    num_inducing: Limit = "auto"
    steps: Limit = "auto"
    minutes: Positive | None = None
    batch_size: Limit = "auto"
    shards: Whole | None = None
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(Run, include_extras=True).items():
            require(name, getattr(self, name), hint)
        require_choice("likelihood", self.likelihood, ("auto", *LIKELIHOODS))
        require_choice("kernel", self.kernel, ("auto", *KERNELS))
        require_choice("nulls", self.nulls, NULLS)
        for period in self.date_periods:
            require_choice("date_periods", period, PERIODS)
        inputs = self.inputs or ()
        if twice := [name for name in inputs if inputs.count(name) > 1]:
            raise InputError(f"{twice[0]!r} is among the inputs more than once")
        if self.target in inputs:
            raise InputError(
                f"the target {self.target!r} is among the inputs; it should not be"
            )
        for name, column in self.target_columns.items():
            require_choice("a column with the target", name, COLUMNS)
            if not column or column in (self.target, *inputs):
                raise InputError(
                    f"{name}={column} should name a column besides the target and the "
                    "inputs"
                )

    @property
    def target_columns(self) -> dict[str, str]:
        """The columns that come with the target, by what they are."""
        pairs = [each.partition("=") for each in self.columns or ()]
        return {name.strip(): column.strip() for name, _, column in pairs}


SECTIONS = {
    "data": ("data", "target", "inputs", "columns", "nulls", "date_periods", "sha256"),
    "model": ("likelihood", "kernel", "num_inducing"),
    "training": ("steps", "minutes", "batch_size", "shards", "seed"),
}
"""Where each field of a run stands in its file."""


def dumps(run: Run) -> str:
    """A run in TOML, with every setting that has a value."""
    lines = ["# natgrad train --config THIS_FILE --out FOLDER trains it again."]
    for section, names in SECTIONS.items():
        lines += ["", f"[{section}]"]
        for name in names:
            if (value := getattr(run, name)) is not None:
                lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def loads(text: str, **given: Any) -> Run:
    """The run in TOML text, with the settings in `given` in the place of its own."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is not TOML: {error}") from error
    values: dict[str, Any] = {}
    for section, fields in document.items():
        require_choice("a section", section, SECTIONS)
        if not isinstance(fields, dict):
            raise InputError(f"{section} is {fields!r}; it should be a section")
        for name, value in fields.items():
            require_choice(f"a key of [{section}]", name, SECTIONS[section])
            values[name] = tuple(value) if isinstance(value, list) else value
    values |= given
    for name in ("data", "target"):
        if name not in values:
            raise InputError(f"it has no {name!r}; add it to section [data]")
    return Run(**values)


def read(path: str | os.PathLike[str], **given: Any) -> Run:
    """The run in a file; a relative path to its data begins where the file is."""
    path = Path(path)
    with naming(path):
        run = loads(path.read_text(encoding="utf-8"), **given)
    there = path.parent / run.data
    is_path = Path(run.data).suffix or there.is_dir()  # or the name of a data set
    if "data" in given or "://" in run.data or not is_path:
        return run
    return dataclasses.replace(run, data=str(there))


def _toml(value: object) -> str:
    """A string, a number or a list of strings as TOML has it."""
    if isinstance(value, tuple):
        items = [_toml(item) for item in value]
        line = f"[{', '.join(items)}]"
        if len(line) <= 80:
            return line
        return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
    if isinstance(value, str):
        # The escapes of JSON are those of TOML, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
