"""Laws of the data sets."""

import os
from pathlib import Path

import numpy as np
import pandas
import pyarrow as arrow
import pyarrow.parquet
import pytest

from natgrad import datasets
from natgrad.datasets import _files as files
from natgrad.datasets._registry import KNOWN
from natgrad.errors import InputError, InputWarning


def test_the_motorcycle_comes_along():
    x, y = datasets.load("motorcycle")
    assert x.shape == (133, 1) and y.shape == (133,)
    assert (np.diff(x[:, 0]) >= 0).all() and len(np.unique(x)) == 94
    # Of the values in R: sum(mcycle$times) and sum(mcycle$accel).
    np.testing.assert_allclose([x.sum(), y.sum()], [3348.8, -3397.6], atol=1e-9)
    assert (x[0, 0], y[0], x[-1, 0], y[-1]) == (2.4, 0.0, 57.6, 10.7)
    assert (y.min(), y.max()) == (-134.0, 75.0)
    frame, column = datasets.load("motorcycle", as_frame=True)
    assert list(frame.columns) == ["times"] and column.name == "accel"
    np.testing.assert_array_equal(frame.to_numpy(), x)
    assert datasets.path("motorcycle").stat().st_size < 20_000


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.parametrize(
    "name", sorted(KNOWN.keys() - {"mnist", "flights_nyc2013", "year"})
)
def test_what_is_known_of_a_data_set_is_so(name):
    if not datasets.path(name).is_file():
        pytest.skip(f"{name} is not there")
    known = datasets.describe(name)
    x, y = datasets.load(name)
    assert x.shape == (known.rows, known.inputs) and y.shape == (known.rows,)
    np.testing.assert_allclose([y.min(), y.max()], [known.low, known.high], rtol=1e-5)
    assert files.content(x, y) == known.content


def test_names_are_unique_and_hashes_are_hashes():
    assert datasets.names() == sorted({"motorcycle", *KNOWN})
    tried = [known for known in KNOWN.values() if known.sha256 is not None]
    assert {known.name for known in tried} == KNOWN.keys() - {"year"}
    hashes = [hash for known in tried for hash in (known.sha256, known.content)]
    assert len(set(hashes)) == len(hashes) and {len(hash) for hash in hashes} == {64}
    assert all(known.sources or known.note for known in KNOWN.values())


def test_one_that_is_absent_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        datasets.load("energy")
    for part in ("archive.ics.uci.edu/dataset/242", "openml.org/d/44960"):
        assert part in str(caught.value)
    assert str(tmp_path / "energy.parquet") in str(caught.value)
    with pytest.raises(InputError, match="no data set 'enrgy'.*mean 'energy'"):
        datasets.load("enrgy")


def yacht(low: float = 0.01, rows: int = 308) -> arrow.Table:
    columns = {f"x{place}": np.arange(rows) * 1.0 for place in range(6)}
    return arrow.table(columns | {"target": np.linspace(low, 62.42, rows)})


def test_one_that_is_not_the_known_file_must_have_its_marks(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    path = tmp_path / "yacht.parquet"
    pyarrow.parquet.write_table(yacht(), path)
    with pytest.raises(InputError, match="yacht.parquet: checksum mismatch"):
        datasets.load("yacht")
    with pytest.warns(InputWarning, match="yacht.parquet is unverified"):
        x, y = datasets.load("yacht", as_frame=True, unverified=True)
    assert isinstance(x, pandas.DataFrame) and x.shape == (308, 6) and len(y) == 308
    pyarrow.parquet.write_table(yacht(rows=307), path)
    with pytest.raises(InputError, match="307 rows of 6 inputs; yacht has 308 of 6"):
        datasets.load("yacht")
    pyarrow.parquet.write_table(yacht(low=-4.6), path)
    with pytest.raises(InputError, match="from -4.6 to 62.42; the target of yacht"):
        datasets.load("yacht")
    nulls = arrow.array([None, *range(1, 308)], arrow.float64())
    pyarrow.parquet.write_table(yacht().set_column(2, "x2", nulls), path)
    with pytest.raises(InputError, match="yacht.parquet: column 'x2' has unexp"):
        datasets.load("yacht")
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read"):
        datasets.load("yacht")
    (tmp_path / "mnist.npz").write_bytes(b"PK and no more")
    with pytest.raises(InputError, match="mnist.npz cannot be read"):
        datasets.load("mnist")


def test_a_content_is_that_of_the_numbers():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (5000, 3)) - 1.0, rng.integers(0, 2, 5000)
    found, order = files.content(x, y), rng.permutation(5000)
    assert files.content(x[order], y[order]) == found
    assert files.content(x.astype(np.int8), y * 1.0) == found
    assert files.content(np.where(x == 0, -0.0, x), y) == found
    assert files.content(x[order], y) != found
    assert files.content(x[:, ::-1], y) != found
    moved = x.copy()
    moved[17, 1] = np.nextafter(moved[17, 1], 9)
    assert files.content(moved, y) != found
    ordered = files.content(x, y, is_ordered=True)
    assert files.content(x[order], y[order], is_ordered=True) != ordered


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/natgrad"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/h/.cache/natgrad"),
        ("linux", {"NATGRAD_DATA": "/d"}, "/d"),
        ("linux", {"NATGRAD_DATA": ""}, "/h/.cache/natgrad"),
        ("darwin", {}, "/h/Library/Caches/natgrad"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/natgrad"),
        ("win32", {}, "/h/AppData/Local/natgrad"),
    ],
)
def test_the_folder_is_that_of_the_platform(monkeypatch, platform, variables, expected):
    for variable in ("NATGRAD_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert files.place(platform, Path("/h")).as_posix() == expected


def rows_of(part: np.ndarray) -> set[int]:
    return set(part[:, 0].astype(int).tolist())


def test_a_split_is_of_all_rows_and_the_same_each_time():
    x = np.stack([np.arange(1007.0), np.ones(1007)], axis=1)
    y = 2 * x[:, 0]
    tests = []
    for number in range(5):
        found = datasets.split("energy", x, y, number)
        again = datasets.split("energy", x, y, number)
        for part, same in zip(found, again, strict=True):
            np.testing.assert_array_equal(part, same)
        train, test = rows_of(found.x), rows_of(found.x_test)
        assert len(found.x) == 907 and len(test) == len(found.x_test) == 100
        assert not train & test and train | test == set(range(1007))
        np.testing.assert_array_equal(found.y, 2 * found.x[:, 0])
        np.testing.assert_array_equal(found.y_test, 2 * found.x_test[:, 0])
        tests.append(frozenset(test))
    assert len(set(tests)) == 5


@pytest.mark.parametrize(
    ("name", "train", "rows"), [("mnist", 60_000, 70_000), ("year", 463_715, 515_345)]
)
def test_an_official_split_is_by_the_order_of_rows(name, train, rows):
    assert KNOWN[name].rows == rows
    x = np.arange(rows)[:, None]
    for number in (0, 1):
        found = datasets.split(name, x, x[:, 0], number)
        np.testing.assert_array_equal(found.x, x[:train])
        np.testing.assert_array_equal(found.y_test, x[train:, 0])
    with pytest.raises(InputError, match=f"there are {train:,} rows; the first"):
        datasets.split(name, x[:train], x[:train, 0])


def assert_scaled(part: np.ndarray, is_constant: np.ndarray) -> None:
    np.testing.assert_allclose(part.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(part.std(0), np.where(is_constant, 0.0, 1.0), atol=1e-9)
    assert (part[:, is_constant] == 0.0).all()


def naval() -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Naval, or a table like it: inputs, targets, and which columns are constant."""
    if "NATGRAD_DATA" in os.environ and datasets.path("naval").is_file():
        return *datasets.load("naval"), [8, 11]
    x = np.random.default_rng(0).normal(size=(11934, 16)) * np.logspace(-9, 9, 16)
    x[:, 8], x[:, 11] = 288.0, 0.998
    return x, np.linspace(0.95, 1.0, 11934), [8, 11]


def test_scaling_is_by_the_training_rows_and_spares_what_is_constant():
    x, y, constant = naval()
    rows = datasets.split("naval", x, y)
    found = datasets.with_scaled_targets(datasets.with_scaled_inputs(rows))
    is_constant = np.isin(np.arange(16), constant)
    assert_scaled(found.x, is_constant)
    assert_scaled(found.y[:, None], np.array([False]))
    assert (found.x_test[:, constant] == 0.0).all()
    mean, deviation = rows.x.mean(0), np.where(is_constant, 1.0, rows.x.std(0))
    np.testing.assert_allclose(
        found.x_test * deviation + mean, rows.x_test, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        found.y_test * rows.y.std() + rows.y.mean(), rows.y_test, rtol=1e-12
    )
    # One row alone is constant in all columns; the others are as far from it as before.
    alone = datasets.with_scaled_inputs(rows._replace(x=rows.x[:1]))
    assert (alone.x == 0.0).all()
    np.testing.assert_array_equal(alone.x_test, rows.x_test - rows.x[:1])


def test_whole_numbers_and_single_precision_are_scaled_in_double():
    pixels = np.arange(200, dtype=np.uint8)[:, None]
    rows = datasets.Split(pixels, pixels[:, 0], pixels, pixels[:, 0])
    assert_scaled(datasets.with_scaled_inputs(rows).x, np.array([False]))
    far = np.float32(1e4) + pixels.astype(np.float32)
    rows = rows._replace(x=np.tile(far, (1000, 1)))
    assert_scaled(datasets.with_scaled_inputs(rows).x, np.array([False]))


@pytest.mark.long
def test_year_is_read_split_and_scaled_at_its_full_size(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    rng, known = np.random.default_rng(0), KNOWN["year"]
    columns = {
        f"x{place}": rng.standard_normal(known.rows, dtype=np.float32) * 10 + place
        for place in range(known.inputs)
    }
    years = rng.integers(1922, 2012, known.rows, dtype=np.int16)
    pyarrow.parquet.write_table(
        arrow.table(columns | {"target": years}),
        datasets.path("year"),
        **{"compression": "none", "use_dictionary": False},
    )
    last = columns["x89"]
    del columns
    with pytest.warns(InputWarning, match="year.parquet is unverified"):
        x, y = datasets.load("year")
    assert x.shape == (515_345, 90) and x.dtype == np.float64
    np.testing.assert_array_equal(x[:, 89], last)
    rows = datasets.split("year", x, y)
    assert rows.x.shape == (463_715, 90) and rows.x_test.shape == (51_630, 90)
    np.testing.assert_array_equal(rows.y_test, years[463_715:])
    del x
    found = datasets.with_scaled_inputs(rows)
    np.testing.assert_allclose(found.x.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(found.x[:, 3].std(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(found.x_test.mean(0), 0.0, atol=0.05)
    y = datasets.with_scaled_targets(rows).y
    np.testing.assert_allclose([y.mean(), y.std()], [0.0, 1.0], atol=1e-9)
