"""A trained model, tables as it reads them, and its predictions as columns."""

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from natgrad._cli.folder import MODEL, is_resumable
from natgrad._registry import CLASSES
from natgrad._text import naming, shown
from natgrad.data import _tables as tables
from natgrad.data._prepare import as_labels
from natgrad.data._schema import EncodedRows, Schema
from natgrad.data._table import Table, target_columns
from natgrad.datasets import _files as files
from natgrad.errors import CorruptFileError, InputError
from natgrad.gp._files import FORMAT


BLOCK = 2**12
"""How many rows are predicted together: few enough to be kept near a processor."""


SAVED = {"target": str, "likelihood": str, "rows": int}
"""What `train` saves with an estimator."""


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
        return self.likelihood in CLASSES


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

    table: Table
    x: EncodedRows
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


def open_model(path: str | os.PathLike[str]) -> Opened:
    from natgrad import sklearn

    file = model_file(path)
    saved = FORMAT.read_metadata(file).get("user") or {}
    estimator = sklearn.load(file)
    try:
        values = {name: saved[name] for name in SAVED}
        opened = Opened(estimator, estimator.schema_, path=file, **values)
    except (KeyError, AttributeError) as error:
        raise InputError(
            f"{file} does not name its target and columns ({error}); it was not "
            "made by natgrad train: use it from Python"
        ) from error
    for name, kind in SAVED.items():
        if not isinstance(value := values[name], kind):
            raise CorruptFileError(
                f"{file}: its {name} is {shown(value)}; it should be a {kind.__name__}"
            )
    if opened.is_classifier != hasattr(estimator, "classes_"):
        raise CorruptFileError(
            f"{file}: its likelihood is {shown(opened.likelihood)}, and it has a "
            f"{type(estimator).__name__}"
        )
    return opened


def located(data: str) -> str:
    """The file of data that is meant, which may be that of a known data set."""
    # A folder of that name is that of a model, most likely.
    if Path(data).is_file() or data not in files.names():
        return data
    file = files.path(data)
    if not file.is_file():
        raise InputError(files.absent(files.describe(data)))
    return str(file)


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(model: Opened, data: str, is_target_wanted: bool) -> Rows:
    """A file of data as a model sees it, without the rows it cannot take."""
    path = located(data)
    table = tables.read(path)
    with naming(path):
        rows = as_rows(model, table, is_target_wanted)
    if not rows.is_complete.any():
        raise InputError(f"{path} has no row without a null")
    return rows


def as_rows(model: Opened, table: Table, is_target_wanted: bool) -> Rows:
    """A table as a model sees it, without the rows it cannot take."""
    target = model.target if is_target_wanted else None
    x, is_complete, y = model.schema.encode(table, target)
    if is_target_wanted:
        y = y[is_complete]
        if model.is_classifier:
            y = as_labels(y)
            _check_classes(y, model)
    others = target_columns(table, model.estimator.columns or {}, is_target_wanted)
    column = Column(model.target, y) if is_target_wanted else None
    return Rows(table, EncodedRows(x, others)[is_complete], column, is_complete)


def _check_classes(y: np.ndarray, model: Opened) -> None:
    classes = model.estimator.classes_
    unknown = np.flatnonzero(~np.isin(y, classes))
    if len(unknown):
        raise InputError(
            f"the target {model.target!r} is {y[unknown[0]]!s} in row {unknown[0]}, "
            f"which is no class of the model; it knows {', '.join(map(str, classes))}"
        )


def predicted(model: Opened, levels: list[float]) -> list[str]:
    """What the columns of predictions are called."""
    if model.is_classifier:
        return ["class", *(f"p({name})" for name in model.estimator.classes_)]
    return ["mean", "std", *(f"q{level:g}" for level in levels)]


def predictions(
    model: Opened, rows: EncodedRows, is_complete: np.ndarray, levels: list[float]
) -> dict[str, Any]:
    """Columns of what is predicted for all rows, null for those that are not whole.

    All blocks have one shape, and so one program: a row's prediction is the same bits
    whatever rows are around it. `rows` are those that are whole.
    """
    # Without any, a row of zeros tells the types of the columns.
    if not len(rows):
        ones = {name: np.ones(1) for name in rows.columns}
        rows = EncodedRows(np.zeros((1, rows.shape[1])), ones)
    parts = []
    for start in range(0, len(rows), BLOCK):
        # The last row again and again fills up the last block.
        places = np.minimum(np.arange(start, start + BLOCK), len(rows) - 1)
        size = min(BLOCK, len(rows) - start)
        parts.append([column[:size] for column in _block(model, rows[places], levels)])
    columns = map(np.concatenate, zip(*parts, strict=True))
    pairs = zip(predicted(model, levels), columns, strict=True)
    return {name: _spread(column, is_complete) for name, column in pairs}


def _block(model: Opened, x: EncodedRows, levels: list[float]) -> list[np.ndarray]:
    estimator = model.estimator
    if model.is_classifier:
        chances = estimator.predict_proba(x)
        return [estimator.classes_[chances.argmax(1)], *chances.T]
    mean, std = estimator.predict(x, return_std=True)
    if model.likelihood == "gaussian":
        from scipy.special import ndtri

        return [mean, std, *(mean + std * ndtri(level) for level in levels)]
    if not levels:
        return [mean, std]
    return [mean, std, *estimator.predict(x, quantiles=levels).T]


def _spread(column: np.ndarray, is_complete: np.ndarray) -> Any:
    """A column for all rows, masked where there was nothing to predict from."""
    values = column.astype(object) if column.dtype.kind in "OSUT" else column
    places = np.maximum(np.cumsum(is_complete) - 1, 0)
    return np.ma.array(values[places], mask=~is_complete)
