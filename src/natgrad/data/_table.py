"""Tables of NumPy, pandas, polars, Arrow and CSV, as columns of one kind.

No other file knows what a table is made of.
"""

import contextlib
import datetime
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from natgrad._registry import BOUNDS
from natgrad.data._columns import (
    NUMBERS,
    Column,
    as_text,
    is_null,
    is_number,
    require,
    require_distinct,
)
from natgrad.data._texts import day_part, in_utc, moment
from natgrad.errors import InputError


NONE = np.zeros(0)
NUMPY_KINDS = {"M": "date", "m": "time", "b": "truth"}


class Table:
    """Columns by name; a function in place of one is called when it is asked for."""

    def __init__(self, columns: Mapping[str, Any], rows: int):
        self._columns, self._rows = dict(columns), rows

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> Column:
        column = self._columns[name]
        if not isinstance(column, Column):
            column = self._columns[name] = column()
        return column

    def select(self, names: Iterable[str]) -> "Table":
        """Some columns."""
        return Table({name: self._columns[name] for name in names}, self._rows)

    def rows(self, rows: slice | np.ndarray) -> "Table":
        """Some rows, by a slice or a mask."""
        count = len(np.arange(self._rows)[rows])
        # What a column is taken for depends on all its rows, so it is decided before.
        return Table({name: self[name][rows] for name in self._columns}, count)


class ArrowColumn(Column):
    """A column of Arrow, whose numbers are made when they are asked for."""

    def __init__(self, name: str, source: Any):
        kind, inner = kind_of(source.type), getattr(source.type, "value_type", None)
        inner = kind if inner is None or kind != "category" else kind_of(inner)
        super().__init__(name, kind, str(source.type), source, NONE, inner)

    def __getitem__(self, rows: slice | np.ndarray) -> "ArrowColumn":
        is_slice = isinstance(rows, slice)
        some = self.source[rows] if is_slice else self.source.filter(rows)
        return ArrowColumn(self.name, some)

    @functools.cached_property
    def values(self) -> np.ndarray:
        import pyarrow as arrow

        column, kind = self.source, self.source.type
        if arrow.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if arrow.types.is_time(kind):  # NumPy has durations only
            whole = arrow.int32() if kind.bit_width == 32 else arrow.int64()
            column = column.cast(whole).cast(arrow.int64())
            column = column.cast(arrow.duration(kind.unit))
        if self.inner in ("date", "time"):
            return array_column(column.to_numpy(), self.name, "").values
        if arrow.types.is_primitive(kind) and not column.null_count:
            plain = column.chunk(0) if column.num_chunks == 1 else column
            return plain.to_numpy(zero_copy_only=False)
        return column.cast(arrow.float64(), safe=False).to_numpy()

    def category_codes(self) -> tuple[np.ndarray, list[str]]:
        import pyarrow as arrow
        from pyarrow import types

        column = self.source
        if types.is_nested(column.type):
            column = arrow.chunked_array([[*map(as_text, self.to_pylist())]])
        if not types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.combine_chunks()
        texts = [as_text(value) for value in column.dictionary.to_pylist()]
        codes = np.asarray(column.indices.cast(arrow.int64()).fill_null(-1))
        if None in texts:
            is_gap = np.array([text is None for text in texts] + [False])
            codes = np.where(is_gap[codes], -1, codes)
        return codes, [text or "" for text in texts]

    def to_pylist(self) -> list[Any]:
        return self.source.to_pylist()

    def to_texts(self) -> list[str | None]:
        import pyarrow as arrow

        column, kind = self.source, self.source.type
        if arrow.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        return column.cast(arrow.string()).to_pylist()


def as_table(
    table: Any,
    names: Sequence[str] | None = None,
    columns: Sequence[Column] | None = None,
) -> Table:
    """Any table of named columns, whose names may be changed; maybe read already."""
    if isinstance(table, Table):
        return table
    columns = list(columns_of(table)) if columns is None else columns
    names = [column.name for column in columns] if names is None else list(names)
    require_distinct(names)
    return Table(dict(zip(names, columns, strict=True)), len(table))


def target_columns(
    table: Table, columns: Mapping[str, str], is_target_known: bool = True
) -> dict[str, np.ndarray]:
    """The columns that come with the target, by what they are.

    For a prediction the target is not known: its bounds are left out, and so is every
    column that the table does not have.
    """
    found = {}
    for name, column in columns.items():
        is_there = column in table.column_names and name not in BOUNDS
        if not is_target_known and not is_there:
            continue
        require(table.column_names, [column])
        try:
            found[name] = table[column].numbers(allow_infinite=True)
        except InputError as error:
            raise InputError(
                f"the column of {name!r} is not of numbers: {error}"
            ) from None
    return found


def concatenated(tables: Sequence[Table]) -> Table:
    """The rows of several tables of Arrow."""
    import pyarrow as arrow

    def joined(name: str) -> Column:
        chunks = [chunk for table in tables for chunk in table[name].source.chunks]
        return ArrowColumn(name, arrow.chunked_array(chunks))

    columns = {name: joined(name) for name in tables[0].column_names}
    return Table(columns, sum(map(len, tables)))


def columns_of(table: Any) -> Iterator[Column]:
    """Yields the columns of a frame; an array has none, unless it holds dates."""
    library, dtype = _library(table), getattr(table, "dtype", None)
    if getattr(dtype, "kind", "") in ("m", "M"):  # an array, or a series
        yield array_column(np.asarray(table).reshape(-1)[:1], "X", str(dtype))
    elif library == "arrow":
        import pyarrow as arrow

        if isinstance(table, arrow.RecordBatch):
            table = arrow.Table.from_batches([table])
        for place, name in enumerate(table.column_names):
            yield ArrowColumn(str(name), table.column(place))
    elif library == "polars":
        for series in table.get_columns():
            kind = str(series.dtype)
            is_text = kind.startswith(("String", "Categorical", "Enum"))
            # NumPy's floats have not all digits of a whole number.
            is_exact = kind.startswith(("Int", "UInt")) and series.null_count()
            is_exact = is_exact or kind.endswith("Int128")
            array = np.array([*series], object) if is_exact else series.to_numpy()
            yield array_column(array, series.name, kind, is_text)
    elif library == "pandas" and table.ndim == 2:
        for name, series in table.items():
            yield _pandas_column(series, str(name))


def array_column(
    array: np.ndarray, name: str, kind: str, is_text: bool = False
) -> Column:
    """A column of NumPy; strings that are all numbers are numbers, unless `is_text`."""
    found = NUMPY_KINDS.get(array.dtype.kind, "number")
    if array.ndim > 1:
        return Column(name, "other", kind, array, array)
    if array.dtype.kind in "mM":
        unit, count = np.datetime_data(array.dtype)
        if unit in ("Y", "M", "generic"):
            array, unit, count = array.astype(f"{array.dtype.kind}8[D]"), "D", 1
        per_day = np.timedelta64(1, "D") / np.timedelta64(1, unit)
        days = array.view(np.int64) * count / per_day
        days[np.isnat(array)] = np.nan
        return Column(name, found, kind, array, days)
    if array.dtype.kind in "biufc":
        return Column(name, found, kind, array, array)
    values = np.full(len(array), np.nan)
    try:
        is_there = np.array([not is_null(value) for value in array], bool)
        there = array[is_there].tolist()
        found, values[is_there] = _kind_and_values(there, is_text)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"column {name!r} cannot be read: {error!s:.80}; make its values numbers, "
            "text or dates, and not several of them"
        ) from error
    source = np.where(is_there, array, np.array(None))
    return Column(name, found, kind, source, values)


def _kind_and_values(objects: list[Any], is_text: bool) -> tuple[str, Any]:
    """What objects are, none of them null, and their numbers."""
    if not objects:
        return "empty", []
    is_all = lambda *kinds: all(isinstance(each, kinds) for each in objects)
    if is_all(str) and (is_text or not all(map(is_number, objects))):
        return "text", np.nan
    if is_all(datetime.date, np.datetime64):
        is_zoned = any(getattr(each, "tzinfo", None) for each in objects)
        dates = [*map(in_utc, objects)] if is_zoned else objects
        return "date", array_column(np.array(dates, "M8[us]"), "", "").values
    if is_all(datetime.time):
        return "time", [*map(day_part, objects)]
    if any(isinstance(each, bytes | list | dict | np.ndarray) for each in objects):
        return "other", np.nan
    return "number", np.array(objects, float)


def _pandas_column(series: Any, name: str) -> Column:
    kind, dtype = str(series.dtype), series.dtype
    if kind == "category":
        codes, categories = series.cat.codes.to_numpy(), series.cat.categories
        if str(categories.dtype).startswith(("interval", "period")):
            categories = categories.astype(str)
        every = array_column(categories.to_numpy(), name, kind, True)
        texts = [*map(as_text, every.to_pylist()), None]
        source = np.array(texts, object)[codes]
        values = np.array([*every.values, np.nan])[codes]
        found = "text" if every.kind == "text" else "category"
        return Column(name, found, kind, source, values, every.kind)
    if kind.endswith("[pyarrow]"):
        import pyarrow as arrow

        return ArrowColumn(name, arrow.chunked_array(series.array.__arrow_array__()))
    if kind.startswith("period"):
        series = series.dt.to_timestamp()
        dtype = series.dtype
    if dtype.kind in "mM":
        # In UTC if there is a time zone.
        array = series.to_numpy(f"{dtype.kind}8[{series.dt.unit}]")
    elif dtype.kind in "biuf" and not isinstance(dtype, np.dtype):
        array = series.to_numpy(float, na_value=np.nan)
    else:
        array = series.to_numpy()
    return array_column(array, name, kind)


def is_frame(table: object) -> bool:
    """Whether something is a frame of pandas, polars or Arrow."""
    return bool(_library(table)) or hasattr(table, "__arrow_c_stream__")


def require_numbers(table: object) -> None:
    """Raises if a column of a frame, or an array, is of dates, texts or categories.

    Dates would become nanoseconds since 1970.
    """
    for column in columns_of(table):
        if column.kind not in NUMBERS:
            raise InputError(column.refusal())


def column_names(table: Any) -> list[Any]:
    """The names of the columns of a frame, or the places of those of an array."""
    shape = np.shape(table)
    if len(shape) != 2:
        raise InputError(
            f"X has shape {list(shape)}; it should have rows and columns, as some "
            "of them come with the target"
        )
    if not is_frame(table):
        return list(range(shape[1]))
    return list(table.column_names if _library(table) == "arrow" else table.columns)


def select(table: Any, places: list[int] | np.ndarray, axis: int) -> Any:
    """Some rows, or with axis 1 some columns, of a frame or an array."""
    library = _library(table)
    if library == "arrow":
        return table.select(places) if axis else table.take(places)
    key: Any = (slice(None), places) if axis else places
    if library == "pandas":
        return table.iloc[key]
    return (np.asarray(table) if isinstance(table, list | tuple) else table)[key]


def _library(table: object) -> str:
    marks = {"arrow": "column_names", "pandas": "iloc", "polars": "get_columns"}
    kind = type(table)  # a frame of pandas has columns as attributes
    return next((name for name, mark in marks.items() if hasattr(kind, mark)), "")


def kind_of(kind: Any) -> str:
    """What a column of a type of Arrow holds."""
    name = str(kind)
    if name.startswith("dictionary"):
        return "text" if kind_of(kind.value_type) == "text" else "category"
    return next(
        (found for found, names in KINDS.items() if name.startswith(names)), "other"
    )


KINDS = {
    "number": ("int", "uint", "halffloat", "float", "double", "decimal"),
    "truth": ("bool",),
    "text": ("string", "large_string"),
    "date": ("date", "timestamp"),
    "time": ("time", "duration"),
    "empty": ("null",),
}
"""What columns of Arrow hold, by the names of their types."""


def as_arrow(columns: Mapping[str, Any]) -> Any:
    """Columns of any kind as a table of Arrow; what is masked is null."""
    import pyarrow as arrow

    return arrow.table({name: _to_arrow(column) for name, column in columns.items()})


def _to_arrow(column: Any) -> Any:
    """A column in Arrow; whole numbers of CSV are integers."""
    import pyarrow as arrow

    if isinstance(column, ArrowColumn):
        return column.source
    if isinstance(column, np.ma.MaskedArray):
        # Objects are texts, also where all of them are masked.
        kind = arrow.string() if column.dtype == object else None
        return arrow.array(column.data, kind, mask=np.ma.getmaskarray(column))
    if not isinstance(column, Column):
        return column
    texts = column.to_pylist()
    there = [text for text in texts if text is not None]
    if column.kind == "truth":
        return arrow.array(column.values == 1, mask=np.isnan(column.values))
    if column.kind == "number":
        try:
            whole = [None if text is None else int(text) for text in texts]
        except ValueError:
            return arrow.array(column.values, mask=np.isnan(column.values))
        for kind in (arrow.int64(), arrow.uint64()):
            with contextlib.suppress(OverflowError):
                return arrow.array(whole, kind)
    if column.kind == "date":
        moments = [None if text is None else moment(text) for text in texts]
        found = arrow.array(moments, arrow.timestamp("us"))
        is_day = max(map(len, there)) == len("2024-02-29")
        return found.cast(arrow.date32()) if is_day else found
    return arrow.array(texts, arrow.string())
