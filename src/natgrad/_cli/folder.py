"""A model in a folder, and tables as that model sees them."""

import contextlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad import _config as runs, datasets, gp
from natgrad._cli.targets import as_labels, target_of
from natgrad._container import shown
from natgrad.data import _tables as tables
from natgrad.data._tables import Schema
from natgrad.errors import CorruptFileError, InputError


MODEL, RUN, HISTORY = "model.natgrad", "run.toml", "history.jsonl"
CHECKPOINT, SCAN = "checkpoint", "scan.npz"
REPLACEMENT = "replacement"
"""Where a run works whose model is to take the place of the one in the folder."""


class Opened(NamedTuple):
    """A trained model, and what was saved with it."""

    estimator: Any
    schema: Schema
    target: str
    likelihood: str
    rows: int
    path: Path

    @property
    def is_classifier(self) -> bool:
        return self.likelihood in runs.CLASSES


class Column:
    """Targets that know their name, which pictures show."""

    def __init__(self, name: str, values: np.ndarray):
        self.name, self.values = name, values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)


class Rows(NamedTuple):
    """A table as a model sees it; `is_complete` are the rows that `x` and `y` hold."""

    table: Any
    x: np.ndarray
    y: Column | None
    is_complete: np.ndarray


def model_file(path: str | os.PathLike[str]) -> Path:
    """The file of a model, which is named itself or by the folder it is in."""
    path = Path(path)
    if not path.is_dir():
        if path.exists():
            return path
        raise InputError(f"{path} does not exist; it should be what train --out made")
    if (path / MODEL).is_file():
        return path / MODEL
    if is_resumable(path):
        raise InputError(
            f"{path} has no model yet, as its training was interrupted; continue with "
            f"natgrad resume {path}"
        )
    raise InputError(f"{path} has no {MODEL}; it should be what train --out made")


def is_resumable(folder: Path) -> bool:
    """Whether a folder has a run that was interrupted."""
    places = (folder, folder / REPLACEMENT)
    return any((place / CHECKPOINT).is_dir() for place in places)


def open_model(path: str | os.PathLike[str]) -> Opened:
    from natgrad import sklearn

    file = model_file(path)
    saved = gp.read_metadata(file).get("user") or {}
    estimator = sklearn.load(file)
    try:
        opened = Opened(
            estimator,
            Schema.from_dict(saved["schema"]),
            saved["target"],
            saved["likelihood"],
            saved["rows"],
            file,
        )
    except KeyError as error:
        raise InputError(
            f"{file} does not say how a table becomes its inputs ({error}); it was not "
            "made by natgrad train: use it from Python"
        ) from error
    _check_opened(opened)
    return opened


def _check_opened(model: Opened) -> None:
    """Raises unless what `train` saved with an estimator is about that estimator."""
    told = {"target": str, "likelihood": str, "rows": int}
    for name, kind in told.items():
        if not isinstance(value := getattr(model, name), kind):
            raise CorruptFileError(
                f"{model.path}: its {name} is {shown(value)}; it should be a "
                f"{kind.__name__}"
            )
    inputs, is_classifier = len(model.schema.features), model.is_classifier
    width = model.estimator.n_features_in_
    if inputs != width or is_classifier != hasattr(model.estimator, "classes_"):
        raise CorruptFileError(
            f"{model.path}: it says {inputs} inputs and likelihood "
            f"{shown(model.likelihood)}, and has a {type(model.estimator).__name__} of "
            f"{width} inputs"
        )


def located(data: str) -> str:
    """The file of data that is meant, which may be that of a data set by its name."""
    # A folder of that name is that of a model, most likely.
    if Path(data).is_file() or data not in datasets.names():
        return data
    if data == "motorcycle":
        return str(datasets.path("motorcycle"))
    if not datasets.path(data).is_file():
        raise InputError(datasets.absent(datasets.describe(data), datasets.path(data)))
    return str(datasets.path(data))


def absolute(data: str) -> str:
    """A path that means the same from any folder."""
    return data if "://" in data else str(Path(data).absolute())


def read_rows(model: Opened, data: str, is_target_wanted: bool) -> Rows:
    """A file of data as a model sees it, without the rows it cannot take."""
    path = located(data)
    table = tables.read(path)
    with said_of(path):
        encoded = model.schema.encode(table)
        y, is_complete = None, encoded.is_complete
        if is_target_wanted:
            y, is_there = target_of(table, model.target)
            if not is_there.all() and model.schema.nulls != "drop":
                refuse_nulls(is_there, model.target)
            is_complete = is_complete & is_there
            y = y[is_complete]
            if model.is_classifier:
                y = as_labels(y)
                _check_classes(y, model)
    if not is_complete.any():
        raise InputError(f"{path} has no row without a null")
    target = None if y is None else Column(model.target, y)
    return Rows(table, encoded.x[is_complete], target, is_complete)


def framed(x: np.ndarray, schema: Schema) -> Any:
    """A matrix with names for its columns, which estimators keep."""
    import pyarrow as arrow

    return arrow.table([*np.ascontiguousarray(x.T)], names=schema.features)


def refuse_nulls(is_there: np.ndarray, target: str) -> None:
    nulls = tables.counted((~is_there).sum(), "null")
    raise InputError(
        f"the target {target!r} has {nulls}, the first in row {(~is_there).argmax()}; "
        "mend them, or train with --nulls drop"
    )


@contextlib.contextmanager
def said_of(path: Any) -> Any:
    """Puts the name of a file before what is wrong with it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _check_classes(y: np.ndarray, model: Opened) -> None:
    classes = model.estimator.classes_
    is_known = np.isin(y, classes)
    if not is_known.all():
        raise InputError(
            f"the target {model.target!r} is {y[(~is_known).argmax()]!s} in row "
            f"{(~is_known).argmax()}, which is no class of the model; it knows "
            f"{', '.join(map(str, classes))}"
        )
