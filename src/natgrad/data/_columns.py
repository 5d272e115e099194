"""Columns of Arrow, or of text, as arrays."""

import re
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from natgrad._text import counted, listed, nearest
from natgrad.data._texts import TextColumn
from natgrad.errors import InputError


LOOSE_DATE = re.compile(
    r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})"
    r"([T\s]+\d{1,2}:\d{2}.*)?\s*$"
)
"""With a year of four digits: 1.2.3 is a version, and not a day."""


PER_DAY = {"s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}
"""How many of a unit of time a day has."""


def numbers(column: Any, name: str) -> np.ndarray:
    """A column in float64, with NaN where it is null; durations in days."""
    is_ours = isinstance(column, TextColumn)
    values = (_text_numbers if is_ours else _arrow_numbers)(column, name)
    if np.isinf(values).any():
        count, row = np.isinf(values).sum(), np.isinf(values).argmax()
        raise InputError(
            f"column {name!r} has {counted(count, 'infinite value')}, the first in "
            f"row {row}; fix or drop them"
        )
    return values


def _text_numbers(column: TextColumn, name: str) -> np.ndarray:
    if is_timestamp(column.type):
        raise InputError(dates(f"column {name!r}", _first(column)))
    if is_text(column.type):
        _refuse(column, name)
    return column.values


def _arrow_numbers(column: Any, name: str) -> np.ndarray:
    import pyarrow as arrow
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if is_timestamp(kind):
        raise InputError(dates(f"column {name!r}", _first(column)))
    if types.is_temporal(kind):
        return days(column, name)
    if not any(test(kind) for test in tests):
        _refuse(column, name)
    if types.is_boolean(kind):
        column = column.cast(arrow.uint8())
    values = column.cast(arrow.float64(), safe=False).to_numpy()
    return np.array(values, dtype=float)


def _refuse(column: Any, name: str) -> NoReturn:
    """Raises that a column is of no numbers."""
    raise InputError(
        f"column {name!r} is of type {column.type}, such as {_first(column)}; it "
        "should be of numbers: make numbers of it, or leave it out"
    )


def days(column: Any, name: str) -> np.ndarray:
    """A column of dates, times or durations in days, with NaN where it is null.

    Dates are counted from 1970, in UTC if they have a time zone.
    """
    if isinstance(column, TextColumn):
        if column.type not in ("date", "time", "empty"):
            _refuse_as_dates(column, name)
        return column.values
    import pyarrow as arrow
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if not types.is_temporal(kind):
        _refuse_as_dates(column, name)
    if types.is_date32(kind):
        column, per_day = column.cast(arrow.int32()), 1.0
    else:
        per_day = PER_DAY[getattr(kind, "unit", "ms")]
        is_short = types.is_time32(kind)
        column = column.cast(arrow.int32() if is_short else arrow.int64())
    values = column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(values, dtype=float) / per_day


def _refuse_as_dates(column: Any, name: str) -> NoReturn:
    raise InputError(
        f"column {name!r} is of type {column.type}, such as {_first(column)}; it "
        "should be of dates: convert it with pandas.to_datetime or similar"
    )


def number_column(column: Any, name: str, out: np.ndarray) -> None:
    """Writes a column to an array, with NaN where it is null."""
    if isinstance(column, TextColumn):
        out[:] = numbers(column, name)
        return
    from pyarrow import types

    kind = column.type
    is_plain = types.is_integer(kind) or types.is_floating(kind)
    if column.null_count or not is_plain:
        out[:] = numbers(column, name)
        return
    done = 0
    for chunk in column.chunks:
        out[done : done + len(chunk)] = chunk.to_numpy()
        done += len(chunk)


def coded(column: Any) -> tuple[np.ndarray, list[str]]:
    """A column as places in a list of texts, -1 where it is null."""
    if isinstance(column, TextColumn):
        places: dict[str | None, int] = {None: -1}
        for text in column.texts:
            places.setdefault(text, len(places) - 1)
        codes = np.array([places[text] for text in column.texts], int)
        return codes, [text for text in places if text is not None]
    import pyarrow as arrow
    from pyarrow import types

    if types.is_nested(column.type):
        column = arrow.chunked_array([[_text(value) for value in column.to_pylist()]])
    if not types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.combine_chunks()
    texts = [_text(value) for value in column.dictionary.to_pylist()]
    codes = np.asarray(column.indices.cast(arrow.int64()).fill_null(-1))
    if None in texts:
        is_null = np.array([text is None for text in texts] + [False])
        codes = np.where(is_null[codes], -1, codes)
    return codes, [text or "" for text in texts]


def target_of(
    column: Any, name: str, text: Any = object, number: Any = np.float64
) -> tuple[np.ndarray, np.ndarray]:
    """A target as strings or as numbers, and which of its rows have one.

    Truth values are the strings true and false.
    """
    if is_truth(column.type):
        column = _as_words(column)
    if is_text(column.type):
        codes, texts = coded(column)
        return np.array([*texts, ""], dtype=text)[codes], codes >= 0
    y = np.empty(len(column), number)
    number_column(column, name, y)
    with np.errstate(all="ignore"):
        if not np.isfinite(y.sum()):
            numbers(column, name)
    return y, ~np.isnan(y)


def refuse_nulls(is_null: np.ndarray, name: str, is_target: bool = False) -> None:
    """Raises if a column has nulls, and names the first."""
    if is_null.any():
        row, others = is_null.argmax(), "'drop'"
        others += "" if is_target else ", 'mean' or 'indicator'"
        raise InputError(
            f"column {name!r} has {counted(is_null.sum(), 'null')}, the first in row "
            f"{row}; fix them, or train with nulls {others}"
        )


def _as_words(column: Any) -> Any:
    """Truth values as the texts true and false."""
    if not isinstance(column, TextColumn):
        import pyarrow as arrow

        return column.cast(arrow.string())
    words = {0.0: "false", 1.0: "true"}
    texts = np.array([words.get(value) for value in column.values], object)
    return TextColumn(texts, "text", column.values)


def is_category(kind: Any) -> bool:
    """Whether a column of this type is a category, where it is an input."""
    return _is(kind, "text", "dictionary") or is_text(kind)


def is_timestamp(kind: Any) -> bool:
    """Whether a column of this type holds dates."""
    return _is(kind, "date", "date", "timestamp")


def is_truth(kind: Any) -> bool:
    """Whether a column of this type holds truth values."""
    return _is(kind, "truth", "boolean")


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds strings."""
    kind = kind.value_type if _is(kind, "", "dictionary") else kind
    return _is(kind, "text", "string", "large_string", "string_view")


def _is(kind: Any, ours: str, *tests: str) -> bool:
    """Whether a type is this of a column of text, or one of these of Arrow."""
    if isinstance(kind, str):
        return kind == ours
    from pyarrow import types

    return any(getattr(types, f"is_{test}")(kind) for test in tests)


def require(names: Iterable[str], wanted: Iterable[str]) -> None:
    """Raises unless a table has all columns that are asked for."""
    names = list(names)
    missing = [name for name in wanted if name not in names]
    if not missing:
        return
    word = "columns" if missing[1:] else "column"
    near = nearest(missing, names)
    # Those that were meant come first, as of many names not all are shown.
    shown = [*near, *(name for name in names if name not in near)]
    there = [title(name, names.index(name)) for name in shown]
    hint = f"did you mean {near[0]!r}? It has" if near else "it has"
    raise InputError(
        f"the table has no {word} {listed(map(repr, missing))}; {hint} {listed(there)}"
    )


def title(name: Any, place: int) -> str:
    """A column's name, or its place if it has none."""
    return str(name) if str(name).strip() else subject(name, place)


def subject(name: Any, place: int) -> str:
    """A column in a sentence."""
    is_named = bool(str(name).strip())
    return (
        f"column {str(name)!r}" if is_named else f"column {place + 1} (without a name)"
    )


def dates(column: str, example: Any) -> str:
    """What to do about a column of dates where numbers are wanted."""
    return (
        f"{column} holds dates or times, such as {example!s:.40}; it should be of "
        "numbers: convert it, such as to days since the first, or leave it out"
    )


def text_dates(column: str, example: Any) -> str:
    """What to do about a column of dates that are text."""
    return (
        f"{column} holds dates as text, such as {example!s:.40}; convert them, as with "
        "pandas.to_datetime, or leave the column out"
    )


def is_date(text: str) -> bool:
    """Whether a text is a date, such as 2024-02-29, 2024/2/29 12:00 or 29.02.2024."""
    return LOOSE_DATE.match(text) is not None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else str(value)


def _first(column: Any) -> str:
    """The first value of a column, short."""
    values = (value for value in column.to_pylist() if value is not None)
    return f"{next(values, None)!s:.40}"
