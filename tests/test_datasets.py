"""Laws of the data sets."""

import os
from pathlib import Path

import numpy as np
import pandas
import pyarrow as arrow
import pyarrow.parquet
import pytest

from natgrad import datasets
from natgrad.datasets import KNOWN
from natgrad.errors import InputError, InputWarning


def test_the_motorcycle_comes_along():
    x, y = datasets.load_motorcycle()
    assert x.shape == (133, 1) and y.shape == (133,)
    assert (np.diff(x[:, 0]) >= 0).all() and len(np.unique(x)) == 94
    # Of the values in R: sum(mcycle$times) and sum(mcycle$accel).
    np.testing.assert_allclose([x.sum(), y.sum()], [3348.8, -3397.6], atol=1e-9)
    assert (x[0, 0], y[0], x[-1, 0], y[-1]) == (2.4, 0.0, 57.6, 10.7)
    assert (y.min(), y.max()) == (-134.0, 75.0)
    frame, column = datasets.load("motorcycle")
    assert list(frame.columns) == ["times"] and column.name == "accel"
    np.testing.assert_array_equal(frame.to_numpy(), x)
    assert datasets.motorcycle_path().stat().st_size < 20_000


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.parametrize("name", sorted(KNOWN.keys() - {"mnist", "flights_nyc2013"}))
def test_what_is_known_of_a_data_set_is_so(name):
    if not datasets.path(name).is_file():
        pytest.skip(f"{name} is not there")
    known = datasets.describe(name)
    x, y = datasets.load(name, as_frame=False)
    assert x.shape == (known.rows, known.inputs) and y.shape == (known.rows,)
    np.testing.assert_allclose([y.min(), y.max()], [known.low, known.high], rtol=1e-5)


def test_names_are_unique_and_hashes_are_hashes():
    assert datasets.names() == sorted({"motorcycle", *KNOWN})
    assert len({known.sha256 for known in KNOWN.values()}) == len(KNOWN)
    assert all(len(known.sha256) == 64 for known in KNOWN.values())
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
    with pytest.warns(InputWarning, match="not the file that natgrad was tried on"):
        x, y = datasets.load("yacht")
    assert isinstance(x, pandas.DataFrame) and x.shape == (308, 6) and len(y) == 308
    pyarrow.parquet.write_table(yacht(rows=307), path)
    with pytest.raises(InputError, match="307 rows of 6 inputs; yacht has 308 of 6"):
        datasets.load("yacht")
    pyarrow.parquet.write_table(yacht(low=-4.6), path)
    with pytest.raises(InputError, match="from -4.6 to 62.42; the target of yacht"):
        datasets.load("yacht")
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="cannot be read"):
        datasets.load("yacht")
    (tmp_path / "mnist.npz").write_bytes(b"PK and no more")
    with pytest.raises(InputError, match="mnist.npz cannot be read"):
        datasets.load("mnist")


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
    assert datasets.place(platform, Path("/h")).as_posix() == expected
