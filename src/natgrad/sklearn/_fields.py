"""What a file has of an estimator besides its model, and what each field may be.

A new parameter or attribute needs a line in a class below.
"""

import dataclasses
import functools
import re
from typing import Annotated, NamedTuple

import numpy as np

from natgrad._annotations import LIMIT, SEED, Count, MaybeNaN, Positive, Rule, Span
from natgrad._config import PERIODS
from natgrad._registry import COLUMNS
from natgrad._text import shown
from natgrad.data._schema import Schema
from natgrad.errors import InputError
from natgrad.train._history import Record


MAX_TEXT = 1000
"""How many characters a message may have."""

MAX_LABELS = 2**20
"""How many characters an array of labels may have, each as long as the longest."""

LARGEST = 1e300
"""Units are at most this, so that a prediction in them is still finite."""

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|U\d{1,9}|O)")


@dataclasses.dataclass(frozen=True)
class Labels:
    """An array of labels; its type takes no more memory than the values need."""

    dtype: str
    values: tuple[bool | int | float | str, ...]

    def __post_init__(self) -> None:
        typed = lambda values: [(type(value), value) for value in values]
        is_text = {*map(type, self.values)} <= {str}
        if (
            not is_text
            and self.dtype[-1:] == "O"
            or (typed(self.array.tolist()) != typed(self.values))
        ):
            raise InputError(f"{shown(self.dtype)} does not hold {shown(self.values)}")

    @functools.cached_property
    def array(self) -> np.ndarray:
        found = _DTYPE.fullmatch(self.dtype)
        if found is None:
            raise InputError(f"{shown(self.dtype)} is no type of numbers or texts")
        code = found[1]
        if code[0] == "U":
            longest = max((len(str(value)) for value in self.values), default=1)
            if longest * len(self.values) > MAX_LABELS:
                raise InputError(f"at most {MAX_LABELS} characters are allowed in all")
            code = f"U{min(longest, int(code[1:]))}"
        try:
            return np.asarray(self.values, code)
        except (OverflowError, ValueError):
            return np.zeros(0)


class SavedHistory(NamedTuple):
    """The history of a run."""

    reason: "Text"
    records: tuple[Record, ...]


Text = Annotated[
    str,
    Rule(lambda text: len(text) <= MAX_TEXT, f"a text of at most {MAX_TEXT} letters"),
]
Centre = Annotated[
    float, Rule(lambda n: abs(n) <= LARGEST, f"a number of at most {LARGEST:g}")
]
Scale = Annotated[
    float,
    Rule(
        lambda n: 1 / LARGEST <= n <= LARGEST,
        f"a number from {1 / LARGEST:g} to {LARGEST:g}",
    ),
]
Limit = Annotated[int | bool | str, LIMIT]  # to Python, True is a whole number
Level = Annotated[
    int | bool, Rule(lambda n: n >= 0, "a whole number, 0 or more, or a bool")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """The parameters of an estimator; a likelihood or kernel that is None is that of
    the model."""

    likelihood: Text | tuple[Text, ...] | None = None
    kernel: Text | None = None
    columns: (
        Annotated[
            dict[str, Text | Count],
            Rule(lambda d: d.keys() <= COLUMNS.keys(), f"some of {', '.join(COLUMNS)}"),
        ]
        | None
    ) = None
    categories: None = None  # categories_ has the order
    n_inducing: Limit
    max_iter: Limit
    batch_size: Limit
    minutes: Positive | None = None
    date_periods: tuple[
        Annotated[str, Rule(lambda name: name in PERIODS, f"one of {[*PERIODS]}")], ...
    ]
    random_state: Annotated[int, SEED] | None = None
    verbose: Level | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """The attributes of an estimator that was fitted."""

    x_mean_: tuple[Centre, ...]
    x_scale_: tuple[Scale, ...]
    y_mean_: Centre | tuple[Centre, ...]
    y_scale_: Scale | tuple[Scale, ...]
    elbo_: MaybeNaN
    fit_seconds_: Span
    n_rows_seen_: Positive
    n_iter_: Count
    n_features_in_: Count
    converged_: bool
    message_: Text
    history_: SavedHistory
    schema_: Schema
    classes_: Labels | None = None
    categories_: Labels | None = None
    feature_names_in_: (
        Annotated[Labels, Rule(lambda names: names.array.dtype.kind in "UO", "texts")]
        | None
    ) = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What a file has of an estimator besides its model."""

    params: Params
    fitted: Fitted
