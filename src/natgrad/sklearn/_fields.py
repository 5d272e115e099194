"""What each field of an estimator file may be.

A rule tests a JSON value and describes what it should be. A new parameter or attribute
needs a line in a table below: a file with a field that has none is refused.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from natgrad._config import PERIODS
from natgrad._container import shown
from natgrad._registry import COLUMNS
from natgrad.errors import IncompatibleFileError, InputError


MAX_TEXT = 1000
"""How many characters a message may have."""

MAX_LABELS = 2**20
"""How many characters an array of labels may have, each as long as the longest."""

LARGEST = 1e300
"""Units are at most this, so that a prediction in them is still finite."""


class Rule(NamedTuple):
    """Whether a JSON value may be in a field, and what it should be in words."""

    accepts: Callable[[Any], bool]
    wanted: str
    is_required: bool = True


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_scale(value: Any) -> bool:
    return _is_number(value) and 1 / LARGEST <= value <= LARGEST


def _is_centre(value: Any) -> bool:
    return _is_number(value) and abs(value) <= LARGEST


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _or_none(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or of(value)


def _is_columns(value: Any) -> bool:
    is_place = lambda each: _is_text(each) or _is_whole(each)
    is_known = isinstance(value, dict) and value.keys() <= COLUMNS.keys()
    return is_known and all(map(is_place, value.values()))


def _object(*keys: str, is_required: bool = True) -> Rule:
    accepts = lambda value: isinstance(value, dict) and value.keys() == {*keys}
    return Rule(accepts, f"an object of {' and '.join(keys)}", is_required)


_LIMIT = Rule(
    # True is a whole number to Python, and `fit` takes it.
    lambda value: value == "auto" or (isinstance(value, int) and value > 0),
    "a whole number above 0 or 'auto'",
)
_NAME = Rule(_or_none(_is_text), "a name, or null for an object")
_NAMES = Rule(
    lambda value: _NAME.accepts(value) or _is_list(_is_text)(value),
    "a name, a list of names, or null for an object",
)
_CENTRE = Rule(
    lambda value: _is_centre(value) or _is_list(_is_centre)(value),
    f"a number of at most {LARGEST:g}, or one for each output",
)
_SCALE = Rule(_is_scale, f"a number from {1 / LARGEST:g} to {LARGEST:g}")
_SCALES = Rule(
    lambda value: _is_scale(value) or _is_list(_is_scale)(value),
    f"{_SCALE.wanted}, or one for each output",
)
_COUNT = Rule(_is_whole, "a whole number, 0 or more")
_SPAN = Rule(lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
_REAL = Rule(_or_none(_is_number), "a number or null")
_TEXT = Rule(_is_text, f"a text of at most {MAX_TEXT} characters")
_LABELS = _object("dtype", "values", is_required=False)

_PARAMS = {
    "likelihood": _NAMES,
    "kernel": _NAME,
    "columns": Rule(_or_none(_is_columns), "an object from names to columns, or null"),
    "categories": Rule(lambda value: value is None, "null: categories_ has the order"),
    "n_inducing": _LIMIT,
    "max_iter": _LIMIT,
    "batch_size": _LIMIT,
    "minutes": Rule(
        _or_none(lambda value: _is_number(value) and value > 0),
        "a number above 0 or null",
    ),
    "date_periods": Rule(
        _or_none(_is_list(lambda value: isinstance(value, str) and value in PERIODS)),
        f"a list of {', '.join(PERIODS)}",
    ),
    "random_state": Rule(
        _or_none(lambda value: _is_whole(value) and value < 2**32),
        "a whole number below 2**32 or null",
    ),
    "verbose": Rule(
        _or_none(lambda value: isinstance(value, int) and value >= 0),
        "true, false or a whole number, 0 or more",
    ),
}
# A parameter has a default, and so may be of a later version than the file.
PARAMS = {name: rule._replace(is_required=False) for name, rule in _PARAMS.items()}

FITTED = {
    "x_mean_": Rule(_is_list(_is_centre), "a list of finite numbers"),
    "x_scale_": Rule(_is_list(_is_scale), f"a list of numbers, each {_SCALE.wanted}"),
    "y_mean_": _CENTRE,
    "y_scale_": _SCALES,
    "elbo_": _REAL,
    "fit_seconds_": _SPAN,
    "n_rows_seen_": Rule(
        lambda value: _is_number(value) and value > 0, "a number above 0"
    ),
    "n_iter_": _COUNT,
    "n_features_in_": Rule(lambda value: _is_whole(value, 1), "a whole number above 0"),
    "converged_": Rule(lambda value: type(value) is bool, "true or false"),
    "message_": _TEXT,
    "history_": _object("reason", "records"),
    "classes_": _LABELS,
    "categories_": _LABELS,
    "feature_names_in_": _LABELS,
    "schema_": _object("columns", "nulls", is_required=False),
}
LABELS = tuple(name for name, rule in FITTED.items() if rule is _LABELS)
"""Arrays of labels, which are saved with their type."""

HISTORY = {
    "reason": _TEXT,
    "records": Rule(
        _is_list(lambda value: isinstance(value, dict)), "a list of objects"
    ),
}

RECORD = {  # of natgrad.train._history.Record
    "step": _COUNT,
    "seconds": _SPAN,
    "objective": _REAL,
    "score": _REAL,
    "step_size": _REAL,
    "halvings": Rule(_or_none(_is_whole), "a whole number or null"),
    "refused": _COUNT,
    "steps_per_second": _REAL,
}

_KINDS = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str}
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|U\d{1,9}|O)")


def passed(node: Any, rules: Mapping[str, Rule], where: str) -> dict[str, Any]:
    """An object whose fields all have a rule, and pass it."""
    if not isinstance(node, dict):
        raise InputError(f"{where} is {shown(node)}; it should be an object")
    if unknown := sorted(node.keys() - rules.keys()):
        raise IncompatibleFileError(
            f"{where} has the unknown field {shown(unknown[0])}; a newer version of "
            "natgrad may know it"
        )
    for name, rule in rules.items():
        if name not in node and rule.is_required:
            raise InputError(f"{where} has no {name}; it should be {rule.wanted}")
        if name in node and not rule.accepts(node[name]):
            raise InputError(
                f"{name} is {shown(node[name])}; it should be {rule.wanted}"
            )
    return dict(node)


def labels(name: str, node: dict[str, Any], kinds: str = "biufUO") -> np.ndarray:
    """An array of labels; its type takes no more memory than the values need."""
    dtype, values = node["dtype"], node["values"]
    found = _DTYPE.fullmatch(dtype) if isinstance(dtype, str) else None
    if found is None or found[1][0] not in kinds:
        raise InputError(
            f"{name} is of type {shown(dtype)}; it should be of numbers or strings"
        )
    kind = found[1][0]
    if not isinstance(values, list) or {type(v) for v in values} - {_KINDS[kind]}:
        raise InputError(
            f"{name} is {shown(values)}; it should be a list of {_KINDS[kind].__name__}"
        )
    code = found[1]
    if kind == "U":
        longest = max(map(len, values), default=0)
        if longest > int(code[1:]) or longest * len(values) > MAX_LABELS:
            raise InputError(
                f"{name} has {len(values)} values of up to {longest} characters; its "
                f"type is {code}, and {MAX_LABELS} are allowed in all"
            )
        code = f"U{max(longest, 1)}"
    try:
        array = np.asarray(values, code)
    except OverflowError:
        array = np.zeros(0)
    if array.tolist() != values:
        raise InputError(f"{name} is {shown(values)}; {dtype} does not hold that")
    return array


def history(node: dict[str, Any]) -> dict[str, Any]:
    """The history of a run, in which a number that was not finite is NaN."""
    found = passed(node, HISTORY, "history_")
    records = [passed(each, RECORD, "a record") for each in found["records"]]
    for record in records:
        record["objective"] = or_nan(record["objective"])
    return {"reason": found["reason"], "records": records}


def or_nan(value: float | None) -> float:
    return math.nan if value is None else value
