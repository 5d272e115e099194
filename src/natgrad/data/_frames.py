"""Frames of pandas, polars and Arrow: what is in their columns, and as Arrow."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from natgrad.data._columns import dates, is_number, is_text, subject
from natgrad.errors import InputError


def require_numbers(frame: Any) -> None:
    """Raises if a column of a frame, or an array, is of dates, texts or categories.

    Dates would become nanoseconds since 1970. Objects are checked one by one, as they
    may be numbers.
    """
    for place, (name, kind, values) in enumerate(_columns(frame)):
        found = _not_numbers(kind, values)
        if found is None:
            continue
        kind, wrong = found
        if kind == "date":
            raise InputError(dates(subject(name, place), wrong))
        raise InputError(
            f"{subject(name, place)} is of {kind}, such as {str(wrong)!r:.40}; it "
            "should be of numbers: convert it, or leave it out"
        )


def is_numeric(frame: Any) -> bool:
    """Whether all columns of a frame are numbers; so are those of an array."""
    return all(
        _not_numbers(kind, values) is None for _, kind, values in _columns(frame)
    )


def require_frame(frame: Any) -> None:
    """Raises unless it has named columns."""
    if not hasattr(frame, "columns"):
        raise InputError(
            f"X is a {type(frame).__name__}; the model was fitted to a table with "
            "categories or dates: give a frame of pandas, polars or Arrow with the "
            "same columns"
        )


def as_table(frame: Any, names: Sequence[str]) -> Any:
    """A frame as a table of Arrow, whose columns have the given names."""
    try:
        import pyarrow as arrow
    except ImportError as error:
        raise ImportError(
            "columns of text, categories or dates need pyarrow: pip install "
            '"natgrad[parquet]"',
            name="pyarrow",
        ) from error
    columns = []
    for place, (name, kind, values) in enumerate(_columns(frame)):
        try:
            if kind == "object" and _not_numbers(kind, values) is None:
                column = arrow.array(frame.iloc[:, place].astype(float))
            elif hasattr(frame, "column_names"):  # of Arrow
                column = frame.column(place)
            elif hasattr(frame, "iloc"):  # of pandas
                column = frame.iloc[:, place]
                is_period = str(column.dtype).startswith("period")
                column = column.dt.to_timestamp() if is_period else column
                column = arrow.array(column, from_pandas=True)
            else:
                column = frame.to_series(place).to_arrow()
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"{subject(name, place)} cannot be read: {error!s:.80}; make its "
                "values numbers, text or dates, and not several of them"
            ) from error
        columns.append(column)
    return arrow.table(columns, names=list(names))


def _not_numbers(kind: str, values: Any) -> tuple[str, Any] | None:
    """The kind of a column that is not of numbers, with an example."""
    if kind == "number":
        return None
    if kind != "object":
        return kind, next((value for value in values() if value is not None), None)
    wrong = next((value for value in values() if _is_wrong(value)), None)
    if wrong is None:
        return None
    return "date" if _is_time(wrong) else "text", wrong


def _columns(frame: Any) -> Iterable[tuple[Any, str, Any]]:
    """The name, the kind and the values of each column, as far as they are known."""
    if hasattr(frame, "column_names") and hasattr(frame, "schema"):  # of Arrow
        for field in frame.schema:
            values = lambda name=field.name: frame[name].to_pylist()
            yield field.name, _arrow_kind(field.type), values
    elif hasattr(frame, "columns") and hasattr(frame, "schema"):  # of polars
        for name, dtype in frame.schema.items():
            values = lambda name=name: frame[name].to_list()
            yield name, _polars_kind(dtype), values
    elif hasattr(frame, "columns") and hasattr(frame, "dtypes"):  # of pandas
        for place, (name, dtype) in enumerate(
            zip(frame.columns, frame.dtypes, strict=True)
        ):
            values = lambda at=place: frame.iloc[:, at].tolist()
            yield name, _pandas_kind(dtype), values
    elif getattr(getattr(frame, "dtype", None), "kind", "") in ("m", "M"):
        yield "X", "date", lambda: np.asarray(frame).reshape(-1)[:1]


def _arrow_kind(kind: Any) -> str:
    from pyarrow import types

    if types.is_temporal(kind):
        return "date"
    if types.is_dictionary(kind):
        return "categories"
    return "text" if is_text(kind) else "number"


def _polars_kind(dtype: Any) -> str:
    if dtype.is_temporal():
        return "date"
    if str(dtype).startswith(("Categorical", "Enum")):
        return "categories"
    return "text" if str(dtype) in ("String", "Utf8") else "number"


def _pandas_kind(dtype: Any) -> str:
    name = str(dtype)
    if dtype.kind in "mM" or name.startswith(("period", "date", "time")):
        return "date"
    if name == "category":
        return "categories"
    return "number" if dtype.kind in "biufc" else "object"


def _is_wrong(value: Any) -> bool:
    """Whether an object is a text that is no number, or a date that is not missing."""
    if not isinstance(value, str):
        return _is_time(value) and value == value
    return not is_number(value)


def _is_time(value: Any) -> bool:
    return hasattr(value, "isoformat") or isinstance(value, np.datetime64)
