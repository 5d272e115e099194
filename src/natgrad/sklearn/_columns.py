"""Columns of a table that come with the target: exposures, trials, bounds, weights.

An estimator's `columns` name them. They are taken out of X before anything else sees
it, so they come with the rows through pipelines, searches and predictions.
"""

from typing import Any

import numpy as np

from natgrad._registry import BOUNDS, COLUMNS
from natgrad._text import choices
from natgrad.data._batches import as_array
from natgrad.data._schema import EncodedRows
from natgrad.data._table import column_names, columns_of, is_frame, select
from natgrad.errors import InputError
from natgrad.gp import likelihoods


def check(columns: Any) -> None:
    """Raises unless an estimator's `columns` are a dictionary of known names."""
    if columns is None:
        return
    known = ", ".join(map(repr, COLUMNS))
    if not isinstance(columns, dict):
        raise InputError(
            f"columns is {columns!r:.60}; it should be a dictionary from {known} to "
            "columns of X"
        )
    for name, column in columns.items():
        if name not in COLUMNS:
            raise InputError(
                f"columns has {name!r}; it should have only {choices(name, COLUMNS)}"
            )
        if not isinstance(column, str | int | np.integer):
            raise InputError(
                f"the column of {name!r} is {column!r:.60}; it should be the name of a "
                "column of X, or its place"
            )
    bounds = sorted(columns.keys() & set(BOUNDS))
    if bounds not in ([], ["event"], ["lower", "upper"]):
        raise InputError(
            f"columns has {' and '.join(map(repr, bounds))}; it should have 'event', "
            "or 'lower' and 'upper'"
        )


def taken(X: Any, columns: Any, is_target_known: bool = True) -> tuple[Any, Any]:
    """X without the columns that come with the target, and these.

    For a prediction the target is not known: its bounds are left out, and so is every
    column that X does not have.
    """
    if isinstance(X, EncodedRows):
        is_known = lambda name: is_target_known or name not in BOUNDS
        return X, {k: each for k, each in X.columns.items() if is_known(k)}
    if not columns:
        return X, {}
    names = column_names(X)
    found: dict[str, Any] = {}
    places = []
    for name, column in columns.items():
        place = _place(names, column)
        if place is None and is_target_known:
            raise InputError(
                f"X has no column {column!r}, which should be the {name!r} of the "
                "target"
            )
        if place is not None:
            places.append(place)
            if is_target_known or name not in BOUNDS:
                found[name] = _numbers(select(X, [place], axis=1), name)
    rest = [place for place in range(len(names)) if place not in places]
    return select(X, rest, axis=1) if places else X, found


def _place(names: list[Any], column: Any) -> int | None:
    if column in names:
        return names.index(column)
    is_place = not isinstance(column, str) and -len(names) <= column < len(names)
    return int(column) % len(names) if is_place else None


def _numbers(column: Any, name: str) -> np.ndarray:
    try:
        for each in columns_of(column) if is_frame(column) else ():
            return each.numbers(allow_infinite=True)
        return np.asarray(as_array(column), float).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"the column of {name!r} is not of numbers: {error}") from None


def chosen(likelihood: Any, y: np.ndarray, columns: dict[str, Any]) -> list[Any]:
    """The likelihoods to compare; none if columns do not tell what "auto" is."""
    if not isinstance(likelihood, str) or likelihood != "auto":
        return [likelihood]
    if "trials" in columns:
        return ["binomial"]
    if "event" in columns:
        return ["weibull"]
    if "noise_sd" in columns or columns.keys() & set(BOUNDS):
        return ["gaussian"]
    if "exposure" in columns:
        is_counts = (y >= 0).all() and (y == np.round(y)).all()
        return ["poisson", "negative-binomial"] if is_counts else ["gamma"]
    return []


def censored(likelihood: Any, columns: dict[str, Any]) -> Any:
    """A likelihood for rows of which some are known by bounds only."""
    is_made = isinstance(likelihood, likelihoods.Censored)
    if is_made or not columns.keys() & set(BOUNDS):
        return likelihood
    return likelihoods.Censored(likelihood)


def in_units(
    columns: dict[str, Any], targets: Any, y: np.ndarray | None = None
) -> dict[str, Any]:
    """Columns as the likelihood sees them, with targets in its units."""
    columns, centre, scale = dict(columns), targets.centre, targets.scale
    event = columns.pop("event", None)
    if event is not None and y is not None:
        is_seen = _events(event)
        columns |= {"lower": y, "upper": np.where(is_seen, y, np.inf)}
    for name, missing in (("lower", -np.inf), ("upper", np.inf)):
        if name in columns:
            bound = np.where(np.isnan(columns[name]), missing, columns[name])
            columns[name] = (bound - centre) / scale
    if "noise_sd" in columns:
        columns["noise_sd"] = columns["noise_sd"] / scale
    # If f has the units of the target.
    if "offset" in columns and targets.likelihood.is_location:
        columns["offset"] = columns["offset"] / scale
    return columns


def _events(event: np.ndarray) -> np.ndarray:
    is_good = (event == 0) | (event == 1)
    if not is_good.all():
        row = int(np.flatnonzero(~is_good)[0])
        raise InputError(
            f"the event of row {row} is {event[row]:g}; it should be 1 where the "
            "target was observed, and 0 where it is larger than y"
        )
    return event == 1
