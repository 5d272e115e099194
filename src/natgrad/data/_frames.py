"""Frames of pandas, polars and Arrow: which of their columns are no numbers."""

from collections.abc import Iterable
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
        if kind == "number":
            continue
        column = subject(name, place)
        if kind == "object":
            wrong = next((value for value in values() if _is_wrong(value)), None)
            if wrong is None:
                continue
            kind = "date" if _is_time(wrong) else "text"
        else:
            wrong = next((value for value in values() if value is not None), None)
        if kind == "date":
            raise InputError(dates(column, wrong))
        raise InputError(
            f"{column} is of {kind}, such as {str(wrong)!r:.40}; it should be "
            "of numbers: encode it with OneHotEncoder in a pipeline, or leave it out"
        )


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
