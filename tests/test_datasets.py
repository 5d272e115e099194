"""Laws of the data sets."""

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import pandas
import pyarrow as arrow
import pyarrow.parquet
import pytest

from natgrad import datasets
from natgrad.datasets import _files as files
from natgrad.datasets._registry import KNOWN
from natgrad.errors import InputError


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
    assert datasets.fetch("motorcycle").stat().st_size < 20_000


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.parametrize("name", sorted(KNOWN.keys() - {"mnist", "flights_nyc2013"}))
def test_what_is_known_of_a_data_set_is_so(name):
    if not files.path(name).is_file():
        pytest.skip(f"{name} is not there")
    known = files.describe(name)
    x, y = datasets.load(name)
    assert x.shape == (known.rows, known.inputs) and y.shape == (known.rows,)
    assert files.content(x, y) == known.sha256


def test_names_are_unique_and_hashes_are_hashes():
    assert datasets.names() == sorted(KNOWN) and "motorcycle" in KNOWN
    hashes = [known.sha256 for known in KNOWN.values()]
    assert len(set(hashes)) == len(hashes) and {len(hash) for hash in hashes} == {64}
    assert all(known.source or known.note for known in KNOWN.values())


def test_one_that_is_absent_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        datasets.load("energy")
    for part in ("run natgrad datasets energy --fetch", "openml.org/d/44960"):
        assert part in str(caught.value)
    assert str(tmp_path / "energy.parquet") in str(caught.value)
    with pytest.raises(InputError, match="no data set 'enrgy'.*mean 'energy'"):
        datasets.load("enrgy")


def yacht(rows: int = 308) -> arrow.Table:
    columns = {f"x{place}": np.arange(rows) * 1.0 for place in range(6)}
    return arrow.table(columns | {"target": np.linspace(0.01, 62.42, rows)})


def test_one_that_is_not_the_known_table_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    path = tmp_path / "yacht.parquet"
    pyarrow.parquet.write_table(yacht(), path)
    with pytest.raises(InputError, match="yacht.parquet: checksum mismatch"):
        datasets.load("yacht")
    known = dataclasses.replace(
        KNOWN["yacht"], sha256=files.content(*files.read(path)[1:])
    )
    with monkeypatch.context() as patched:
        patched.setitem(KNOWN, "yacht", known)
        x, y = datasets.load("yacht", as_frame=True)
    assert isinstance(x, pandas.DataFrame) and x.shape == (308, 6) and len(y) == 308
    assert list(x.columns) == [f"x{place}" for place in range(6)]
    assert y.name == "target"
    pyarrow.parquet.write_table(yacht(rows=307), path)
    with pytest.raises(InputError, match="307 rows of 6 inputs; yacht has 308 of 6"):
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
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/h"))
    assert files.folder().as_posix() == expected
