"""Tables as an estimator takes them: any frame or array in, a matrix of numbers out."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_X_y, validate_data

from natgrad._config import PERIODS
from natgrad._text import printable_errors
from natgrad.data._columns import NUMBERS, Column, is_null
from natgrad.data._schema import EncodedRows, Schema, infer, infer_numbers
from natgrad.data._table import as_table, columns_of, is_frame, require_numbers
from natgrad.errors import InputError


NULLS = "indicator"
"""What estimators do about nulls."""

WITH_GAPS: Any = {"ensure_all_finite": "allow-nan"}


def learn(
    estimator: Any, X: Any, y: Any, schema: Schema | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Stores the schema of a table; its rows as numbers, and its targets.

    If the schema is given, the rows of X are encoded by it.
    """
    require_targets(y)
    rules = estimator._rules() | WITH_GAPS
    periods = checked_periods(estimator.date_periods)
    if schema is not None:
        names = np.array(schema.names, dtype=object)
        estimator.feature_names_in_, estimator.n_features_in_ = names, len(names)
        estimator.schema_ = schema
        return check_X_y(X.x, y, estimator=estimator, **rules)
    columns = _columns(X)
    if columns is None:
        found: Any = validate_data(estimator, X, y, **rules)
        x, y = found
        estimator.schema_ = infer_numbers(x, names_of(estimator))
        return estimator.schema_.encode_matrix(x), y
    validate_data(estimator, X, y, skip_check_array=True)
    table = as_table(X, names_of(estimator), columns)
    estimator.schema_ = schema = infer(table, table.column_names, NULLS, periods)
    return check_X_y(schema.encode(table).x, y, estimator=estimator, **rules)


def _columns(X: Any) -> list[Column] | None:
    """The columns of a frame, or None if all are numbers, as those of an array are."""
    if not is_frame(X):
        require_numbers(X)
        return None
    columns = list(columns_of(X))
    return None if all(each.kind in NUMBERS for each in columns) else columns


def encode(estimator: Any, X: Any, y: Any = None) -> Any:
    """The rows of a table as numbers, as in `learn`; and the targets, if given."""
    if isinstance(X, EncodedRows):
        return X.x if y is None else (X.x, np.asarray(y))
    require_targets(y)
    schema = estimator.schema_
    # With targets, scikit-learn checks that there is one for each row.
    targets = () if y is None else (y,)
    rules = {"dtype": np.float64} if y is None else estimator._rules()
    with printable_errors():  # they list names of columns
        columns = _columns(X)
        if schema.is_numeric and columns is None:
            options = rules | WITH_GAPS | {"reset": False}
            found: Any = validate_data(estimator, X, *targets, **options)
            x = schema.encode_matrix(found if y is None else found[0])
            return x if y is None else (x, found[1])
        if not is_frame(X):
            raise InputError(
                f"X is a {type(X).__name__}; the model was fitted to a table with "
                "categories or dates: give a frame of pandas, polars or Arrow with the "
                "same columns"
            )
        validate_data(estimator, X, skip_check_array=True, reset=False)
        x, is_complete, _ = schema.encode(as_table(X, schema.names, columns))
        if not is_complete.all():
            raise InputError(
                f"X has nulls in {np.sum(~is_complete):,} of {len(x):,} rows, the "
                f"first in row {is_complete.argmin()}; the model was trained with "
                "nulls 'drop': drop these rows"
            )
        check, options = (check_array, {}) if y is None else (check_X_y, rules)
        return check(x, *targets, estimator=estimator, **options)


def require_targets(y: Any) -> None:
    """Raises an InputError if a row has no target.

    Several outputs may have gaps, and `_outputs` checks them.
    """
    # As objects: NumPy turns a NaN in a list of labels into the text "nan".
    is_list = type(y) in (list, tuple)
    values = np.asarray(y, object if is_list else None)
    is_one = values.ndim > 0 and values.size == len(values)
    if values.dtype.kind not in "fO" or not is_one:
        return
    is_gap = np.array([is_null(value) for value in values.ravel()], bool)
    if is_gap.any():
        raise InputError(
            f"y has no value in {is_gap.sum():,} of {len(is_gap):,} rows, the first "
            f"in row {is_gap.argmax()}; drop these rows"
        )


def names_of(estimator: Any) -> list[str]:
    """The names of the user's columns, or x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"x{i}" for i in range(estimator.n_features_in_)]
    return [str(name) for name in names]


def checked_periods(periods: Any) -> tuple[str, ...]:
    """The periods of dates that are inputs."""
    is_list = isinstance(periods, list | tuple)
    if not is_list or not all(period in PERIODS for period in periods):
        raise InputError(
            f"date_periods is {periods!r}; it should be a list of some of "
            f"{', '.join(map(repr, PERIODS))}"
        )
    return tuple(dict.fromkeys(periods))
