"""A table of any columns as numbers: ridge codes, gaps and dates.

A category's code is its coefficient in one ridge regression of the target on the
numeric columns, their squares and all categories at once. Other columns are held fixed
by it, which a category's mean target does not do.

    python benchmarks/codes.py        # checks the codes on made-up rows
"""

from typing import Any

import numpy as np
import pandas as pd


PENALTY = 1.0
FOLDS = 5
SKEWED = 2.0
"""A positive target of greater skewness enters the ridge as its logarithm."""


def encode(
    train: pd.DataFrame, test: pd.DataFrame, y: np.ndarray, groups: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the training and of the test rows, [N, D].

    The codes of a training row come from folds without it and its group, so they hold
    nothing of its own target. The codes of test rows come from all training rows.
    """
    train, test = with_dates(train), with_dates(test)
    is_text = [not pd.api.types.is_numeric_dtype(train[name]) for name in train]
    text, numbers = train.columns[is_text], train.columns[~np.array(is_text)]
    x, x_test = filled(train[numbers], test[numbers])
    if not len(text):
        return x, x_test
    labels, labels_test = (as_labels(frame[text]) for frame in (train, test))
    target = standardised_target(y)
    fold = folds(len(y), groups)
    codes = np.empty(labels.shape)
    for i in np.unique(fold):
        rest = fold != i
        fitted = coefficients(x[rest], labels[rest], target[rest])
        codes[~rest] = coded(labels[~rest], fitted)
    codes_test = coded(labels_test, coefficients(x, labels, target))
    mean, scale = codes.mean(0), codes.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = lambda values: (values - mean) / scale
    return np.hstack([x, scaled(codes)]), np.hstack([x_test, scaled(codes_test)])


def folds(number: int, groups: np.ndarray | None) -> np.ndarray:
    """The fold of each row; rows of one group share theirs."""
    of = (
        np.arange(number)
        if groups is None
        else np.unique(groups, return_inverse=True)[1]
    )
    return (np.random.default_rng(0).permutation(of.max() + 1) % FOLDS)[of]


def with_dates(frame: pd.DataFrame) -> pd.DataFrame:
    """A date becomes a number of days and its place in the year, and in the day."""
    frame = frame.copy()
    for name in frame.select_dtypes("datetime").columns:
        date = frame.pop(name)
        days = (date - pd.Timestamp("2000-01-01")) / pd.Timedelta("1D")
        frame[f"{name} days"] = days
        periods = {"year": 365.25} | ({"day": 1.0} if (days % 1).any() else {})
        for period, length in periods.items():
            angle = 2 * np.pi * days / length
            frame[f"{name} sin {period}"] = np.sin(angle)
            frame[f"{name} cos {period}"] = np.cos(angle)
    return frame


def filled(train: pd.DataFrame, test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The training mean in gaps, and a column that marks the gaps of training rows."""
    train, test = train.astype(float), test.astype(float)
    gaps = train.columns[train.isna().any()]
    x, x_test = (frame.fillna(train.mean()).to_numpy() for frame in (train, test))
    marks, marks_test = (frame[gaps].isna().to_numpy(float) for frame in (train, test))
    return np.hstack([x, marks]), np.hstack([x_test, marks_test])


def as_labels(frame: pd.DataFrame) -> np.ndarray:
    return frame.astype(object).where(frame.notna(), "missing").astype(str).to_numpy()


def standardised_target(y: np.ndarray) -> np.ndarray:
    skew = np.mean((y - y.mean()) ** 3) / y.std() ** 3
    y = np.log(y) if y.min() > 0 and skew > SKEWED else y
    return (y - y.mean()) / y.std()


def coefficients(
    x: np.ndarray, labels: np.ndarray, target: np.ndarray
) -> list[dict[Any, float]]:
    """What the ridge regression adds for each category of each column."""
    scale = np.where(x.std(0) > 0, x.std(0), 1.0)
    x = (x - x.mean(0)) / scale
    known = [np.unique(column, return_inverse=True) for column in labels.T]
    design = np.hstack([x, x**2, *(np.eye(len(of))[at] for of, at in known)])
    design = design - design.mean(0)
    normal = design.T @ design + PENALTY * np.eye(design.shape[1])
    solved = np.linalg.solve(normal, design.T @ (target - target.mean()))
    ends = np.cumsum([2 * x.shape[1], *(len(of) for of, _ in known)])
    parts = np.split(solved, ends[:-1])[1:]
    return [
        dict(zip(of, part, strict=True))
        for (of, _), part in zip(known, parts, strict=True)
    ]


def coded(labels: np.ndarray, fitted: list[dict[Any, float]]) -> np.ndarray:
    """An unknown category has code 0."""
    columns = [
        [codes.get(label, 0.0) for label in column]
        for column, codes in zip(labels.T, fitted, strict=True)
    ]
    return np.array(columns).T


def check() -> None:
    """Codes follow effects with other columns held fixed, and hold no own target."""
    rng = np.random.default_rng(0)
    effect = {"a": -1.0, "b": 0.0, "c": 2.0}
    label = rng.choice(list(effect), 600)
    adds = np.array([effect[one] for one in label])
    size = rng.normal(size=600) - 3 * adds  # hides the effect from the plain means
    y = size + adds + 0.1 * rng.normal(size=600)
    frame = pd.DataFrame({"size": size, "label": label})
    x, _ = encode(frame, frame, y, None)
    assert x.shape == (600, 2) and np.corrcoef(x[:, 1], adds)[0, 1] > 0.99
    other = pd.DataFrame({"size": [0.0, np.nan], "label": ["c", "new"]})
    _, x_test = encode(frame, other, y, None)
    assert x_test[0, 1] > 1 and x_test[1, 0] == size.mean()
    noise, pairs = rng.normal(size=600), np.arange(600) // 2
    own = pd.DataFrame({"size": size, "label": pairs.astype(str)})
    x, _ = encode(own, own, noise, None)
    assert abs(np.corrcoef(x[:, 1], noise)[0, 1]) < 0.15
    x, _ = encode(own, own, noise, pairs)  # no category is known outside its fold
    assert np.all(x[:, 1] == 0)
    when = pd.DataFrame({"when": pd.date_range("2013-01-01", periods=600, freq="h")})
    x, _ = encode(when, when, y, None)
    assert x.shape == (600, 5) and np.allclose(np.diff(x[:, 0]), 1 / 24)


if __name__ == "__main__":
    check()
    print("the codes are right")
