"""The sets of the study of rows: what is held out, what is coded, and what is grouped.

Every method reads its rows here, so all see the same numbers. Constants of the engine
may be chosen on splits below 20 of any set of `SETS` and on the sets marked "choose";
those marked "report" and the five of `rows_five` are for figures only.
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from codes import encode
from rows_five import FIVE


MOST_TEST_ROWS = 2000
RUNS = 64
"""Runs of consecutive training rows that are the groups of a set in time."""

SMALL, MIDDLE = (20, 21, 22, 23, 24), (20, 21, 22)


class Rows(NamedTuple):
    file: str
    kind: str
    """real, count, binary or classes."""
    splits: tuple[int, ...] = MIDDLE
    target: str = "target"
    resolution: float | None = None
    """The step of the target, whose mass is scored; None scores its density."""
    held_out: str = "tenth"
    """Random rows (tenth, fifth), whole groups, or the last share of the time."""
    share: float = 0.1
    group: Callable[[pd.DataFrame], Any] | None = None
    drop: tuple[str, ...] = ()
    sample: int | None = None
    """A fixed random subset of so many rows stands for the table."""
    most_test_rows: int = MOST_TEST_ROWS
    half: str = ""


def by_time(column: str) -> Callable[[pd.DataFrame], Any]:
    return lambda frame: frame[column].rank(method="first")


def fifth(file: str, kind: str, half: str, **options: Any) -> Rows:
    return Rows(file, kind, held_out="fifth", share=0.2, half=half, **options)


SETS: dict[str, Rows] = {
    "energy": Rows("energy", "real", SMALL),
    "boston": Rows("boston", "real", SMALL),
    "concrete": Rows("concrete", "real", SMALL),
    "yacht": Rows("yacht", "real", SMALL),
    "pima": Rows("pima", "binary", SMALL),
    "banana": Rows("banana", "binary", SMALL),
    "titanic": Rows("titanic", "binary", SMALL, "survived"),
    "wine": Rows("wine_red", "classes", SMALL),
    "wine rating": Rows("wine_red", "real", SMALL, resolution=1.0),
    "kin8nm": Rows("kin8nm", "real"),
    "power": Rows("power", "real"),
    "naval": Rows("naval", "real", resolution=0.001),
    "protein": Rows("protein", "real", resolution=0.1),
    "elevators": Rows("elevators", "real"),
    "bike": Rows("bike", "count", resolution=1.0),
    "diamonds": Rows("diamonds", "real", target="price", sample=20_000),
    "adult": Rows("adult", "binary", drop=("part",), sample=10_000),
    "flights": Rows("flights_nyc2013", "real", (20, 21), resolution=1.0),
    "bike weeks": Rows(
        "bike",
        "count",
        (20, 21),
        resolution=1.0,
        held_out="groups",
        group=lambda frame: np.arange(len(frame)) // 168,
    ),
    "flights days": Rows(
        "flights_nyc2013",
        "real",
        (20, 21),
        resolution=1.0,
        held_out="groups",
        group=lambda frame: frame["month"] * 100 + frame["day_of_month"],
        most_test_rows=1500,
    ),
    "seattle": Rows(
        "seattle_weather",
        "real",
        (20,),
        "temp_max",
        held_out="last",
        share=0.3,
        group=by_time("date"),
    ),
    "ames": fifth("ames", "real", "choose"),
    "wage": fifth("wage", "real", "choose"),
    "auto": fifth("auto", "real", "choose"),
    "elecdemand": Rows(
        "elecdemand",
        "real",
        (20,),
        held_out="last",
        share=0.2,
        group=lambda frame: np.arange(len(frame)),
        half="choose",
    ),
    "credit": fifth("credit", "binary", "choose"),
    "nmes": fifth("nmes", "count", "choose", resolution=1.0),
    "computers": fifth("computers", "real", "report", resolution=1.0),
    "storms": Rows(
        "storms",
        "real",
        resolution=5.0,
        held_out="groups",
        share=0.2,
        group=lambda frame: frame["name"] + frame["year"].astype(str),
        drop=("name",),
        half="report",
    ),
    "stackoverflow": fifth("stackoverflow", "real", "report"),
    "nox": Rows(
        "nox",
        "real",
        held_out="groups",
        share=0.2,
        group=lambda frame: frame["julday"],
        half="report",
    ),
    "wa_churn": fifth("wa_churn", "binary", "report"),
    "attrition": fifth("attrition", "binary", "report"),
    "nyc_weather": Rows(
        "nyc_weather",
        "real",
        (20,),
        held_out="last",
        share=0.2,
        group=by_time("time_hour"),
        half="report",
    ),
}


def packaged(name: str) -> Rows:
    """One of the five tables, read from its package."""
    table = FIVE[name]
    options: dict[str, Any] = {"drop": table.drop}
    if table.group:
        column = table.group
        options |= {"held_out": "groups", "group": lambda frame: frame[column]}
        options["drop"] += (column,)
    else:
        options["held_out"] = "fifth"
    if table.kind == "count":
        options["resolution"] = 1.0
    where = f"{table.package}:{table.file}"
    return Rows(
        where, table.kind, MIDDLE, table.target, share=0.2, half="five", **options
    )


SETS |= {name: packaged(name) for name in FIVE}


def read(file: str) -> pd.DataFrame:
    if ":" not in file:
        return pd.read_parquet(Path(os.environ["NATGRAD_DATA"]) / f"{file}.parquet")
    package, path = file.split(":")
    found = importlib.util.find_spec(package)
    if found is None:
        raise ModuleNotFoundError(f"no {package}; rows_five.py says how to install it")
    assert found.submodule_search_locations
    return pd.read_csv(Path(found.submodule_search_locations[0]) / path)


def load(name: str, split: int) -> dict[str, Any]:
    """Training rows x, y and groups, and test rows x_test, y_test and groups_test.

    `is_copy_test` marks the test rows whose inputs and target a training row has too.
    """
    rows = SETS[name]
    frame = read(rows.file)
    if rows.sample:
        chosen = np.random.default_rng(7).permutation(len(frame))[: rows.sample]
        frame = frame.iloc[chosen].reset_index(drop=True)
    groups = None
    if rows.group:
        groups = np.unique(rows.group(frame), return_inverse=True)[1].ravel()
    frame = frame.drop(columns=list(rows.drop))
    y = frame.pop(rows.target).to_numpy()
    if rows.kind in ("binary", "classes"):
        y = np.unique(y.astype(str) if y.dtype == object else y, return_inverse=True)[1]
    y = y.astype(float)
    train, test = held_out(rows, len(y), groups, split)
    if rows.held_out == "last":
        assert groups is not None
        groups = groups * RUNS // len(train)
    of = lambda part: None if groups is None else groups[part]
    before, after = frame.iloc[train], frame.iloc[test]
    x, x_test = encode(before, after, y[train], of(train))
    every = pd.util.hash_pandas_object(frame.assign(y=y), index=False).to_numpy()
    return {
        "name": name,
        "kind": rows.kind,
        "resolution": rows.resolution,
        "x": x,
        "y": y[train],
        "x_test": x_test,
        "y_test": y[test],
        "groups": of(train),
        "groups_test": of(test),
        "is_copy_test": np.isin(every[test], every[train]),
    }


def held_out(
    rows: Rows, number: int, groups: np.ndarray | None, split: int
) -> tuple[np.ndarray, np.ndarray]:
    """Places of the training rows and of the test rows."""
    rng = np.random.default_rng(split)
    if rows.held_out in ("tenth", "fifth"):  # the rule of tables.py
        order = rng.permutation(number)
        cut = number // (10 if rows.held_out == "tenth" else 5)
        return order[cut:], order[:cut][: rows.most_test_rows]
    assert groups is not None
    if rows.held_out == "last":
        order = np.argsort(groups, kind="stable")
        train, test = np.split(order, [number - int(rows.share * number)])
    else:
        out = rng.permutation(groups.max() + 1)[: int(rows.share * (groups.max() + 1))]
        is_out = np.isin(groups, out)
        train, test = np.flatnonzero(~is_out), np.flatnonzero(is_out)
    return train, np.random.default_rng(3).permutation(test)[: rows.most_test_rows]
