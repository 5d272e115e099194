"""Laws of what is known of a table after one pass over it."""

import json
import sys

import numpy as np
import pyarrow as arrow
import pytest

from natgrad.data import Parquet, scan
from natgrad.data._scan import merge, scan_part
from natgrad.data._schema import infer
from natgrad.errors import InputError
from tests.data.test_parquet import write


N = 1500


def table(seed: int = 0) -> arrow.Table:
    """Numbers far from zero, strings, and nulls among both."""
    rng = np.random.default_rng(seed)
    far = 1e8 + rng.standard_normal(N)
    towns = rng.choice(["Ely", "Rye", "Wem", None], N, p=[0.5, 0.3, 0.1, 0.1])
    size = [None if rng.random() < 0.1 else float(v) for v in rng.gamma(2.0, size=N)]
    days = rng.integers(1_500_000_000, 1_600_000_000, N)
    return arrow.table(
        {
            "far": far,
            "town": arrow.array(towns.tolist()),
            "size": size,
            "rooms": rng.integers(0, 5, N),
            "day": arrow.array(days, arrow.timestamp("s"), mask=rng.random(N) < 0.05),
            "y": far - 1e8 + rng.integers(0, 5, N),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scan")
    write(folder / "a.parquet", table().slice(0, 600), [31, 8])
    write(folder / "b.parquet", table().slice(600), [50])
    return folder


def exchanged(part):
    """A part as another process gets it: arrays, and the rest through JSON."""
    arrays = [np.array(part.moments), np.array(part.rows), np.array(part.sample)]
    return type(part)(*arrays, *json.loads(json.dumps(part[3:])))


@pytest.mark.parametrize("nulls", ["drop", "mean", "indicator"])
def test_means_are_those_of_the_table_in_memory(folder, nulls):
    found, whole = scan(folder, "y", nulls=nulls, rows=100), table()
    schema = infer(whole, whole.column_names[:-1], nulls)
    x, is_complete, _ = schema.encode(whole)
    y = whole["y"].to_numpy()
    assert found.schema.names == schema.names
    assert found.schema.features == schema.features
    assert found.num_rows == N and found.num_complete == is_complete.sum()
    assert found.nulls == {name: whole[name].null_count for name in whole.column_names}
    np.testing.assert_allclose(found.mean, x[is_complete].mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, x[is_complete].std(0), rtol=1e-7)
    assert found.target_mean == pytest.approx(y[is_complete].mean(), rel=1e-12)
    assert found.target_deviation == pytest.approx(y[is_complete].std(), rel=1e-12)
    assert found.values is None
    places = {value: row for row, value in enumerate(y) if is_complete[row]}
    drawn = [places[value] for value in found.sample_y]
    assert len(set(drawn)) == 100
    np.testing.assert_allclose(found.sample_x, x[drawn], rtol=1e-12)


@pytest.mark.parametrize("processes", [2, 3, 7, 64])
@pytest.mark.parametrize("blocks", [5, 256])
def test_the_summary_is_the_same_for_any_number_of_processes(
    folder, processes, blocks, monkeypatch
):
    monkeypatch.setattr(sys.modules["natgrad.data._scan"], "BLOCKS", blocks)
    options = {"nulls": "indicator", "rows": 70, "seed": 5, "date_periods": ["week"]}
    alone = scan(folder, "y", **options)
    parts = [
        scan_part(folder, "y", process=process, processes=processes, **options)
        for process in range(processes)
    ]
    assert len({(p.moments.shape, p.rows.shape, p.sample.shape) for p in parts}) == 1
    together = merge([exchanged(part) for part in parts])
    for name in (
        "num_rows",
        "num_complete",
        "nulls",
        "schema",
        "values",
        "target_mean",
    ):
        assert getattr(together, name) == getattr(alone, name)
    for name in ("mean", "deviation", "sample_x", "sample_y"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))


def test_each_row_is_drawn_equally_often(tmp_path):
    y = np.arange(60.0)
    write(tmp_path / "a.parquet", {"a": y, "y": y}, [7, 20])
    draws, times = 400, np.zeros(60)
    for seed in range(draws):
        times[scan(tmp_path, "y", rows=15, seed=seed).sample_y.astype(int)] += 1
    # χ² of 60 counts of a quarter each, drawn without replacement.
    statistic = ((times - draws / 4) ** 2).sum() / (draws * 0.25 * 0.75 * 60 / 59)
    assert 30 < statistic < 100
    few = scan(tmp_path, "y", rows=100)
    np.testing.assert_array_equal(np.sort(few.sample_y), y)


def test_labels_and_few_numbers_are_told_and_many_are_not(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.standard_normal(300),
        "label": np.repeat(["c", "a", "b"], 100),
        "is": np.arange(300) % 3 == 0,
        "grade": np.arange(300) % 4,
        "name": [f"n{row}" for row in range(300)],
    }
    write(tmp_path / "a.parquet", columns, [40])
    told = {
        name: scan(tmp_path, name, ["a"], rows=50)
        for name in ("label", "is", "grade", "a")
    }
    assert told["label"].values == ("a", "b", "c")
    assert told["is"].values == ("false", "true")
    assert told["grade"].values == (0, 1, 2, 3) and told["a"].values is None
    assert set(told["label"].sample_y) == {"a", "b", "c"}
    assert told["label"].target_mean is None
    with pytest.raises(
        InputError, match="'name' has 300 different values.*; a category"
    ):
        scan(tmp_path, "a", ["name"])
    schema = scan(tmp_path, "a", ["label", "grade"]).schema
    batch = Parquet(tmp_path, "a", batch_size=8, schema=schema).take(0, 3)
    np.testing.assert_array_equal(batch.x[..., :3].sum(-1), np.ones((3, 8)))


def test_nulls_that_are_refused_are_named_with_their_file(folder, tmp_path):
    with pytest.raises(InputError, match=r"a.parquet, row group 0: column 'town' has"):
        scan(folder, "y")
    y = arrow.array([1.0, None, 3.0])
    write(tmp_path / "a.parquet", arrow.table({"a": [1.0, 2.0, np.inf], "y": y}), [3])
    with pytest.raises(InputError, match="'y' has 1 null.*with nulls 'drop'$"):
        scan(tmp_path, "y", inputs=["y"], nulls="mean")
    with pytest.raises(InputError, match="'a' has 1 infinite value"):
        scan(tmp_path, "y", nulls="drop")
    with pytest.raises(InputError, match="no column 'z'"):
        scan(tmp_path, "z")


def test_dates_as_text_are_refused_on_disk_too(tmp_path):
    days = arrow.array(["28/2/2024", "29/2/2024"])
    write(tmp_path / "a.parquet", arrow.table({"day": days, "y": [1.0, 2.0]}), [2])
    with pytest.raises(InputError, match="column 'day' holds dates as text, such as"):
        scan(tmp_path, "y")


def test_periods_of_dates_are_columns_of_batches(tmp_path):
    days = arrow.array(np.arange(20).astype("M8[D]"))
    write(tmp_path / "a.parquet", arrow.table({"day": days, "y": np.ones(20)}), [5])
    schema = scan(tmp_path, "y", date_periods=["week"]).schema
    batch = Parquet(tmp_path, "y", batch_size=8, schema=schema).take(0, 2)
    np.testing.assert_allclose((batch.x[..., 1:] ** 2).sum(-1), np.ones((2, 8)))
    with pytest.raises(
        InputError, match="date_periods is 'month'; it should be one of day"
    ):
        scan(tmp_path, "y", date_periods=["month"])
    with pytest.raises(InputError, match="column 'day' is of strings or dates"):
        Parquet(tmp_path, "y", batch_size=8)


def test_of_a_long_table_some_row_groups_are_looked_at(folder, monkeypatch):
    monkeypatch.setattr(sys.modules["natgrad.data._scan"], "MOST", 500)
    part = scan_part(folder, "y", nulls="drop")
    assert 400 < part.rows[:, 0].sum() <= 500
    found, whole = merge([part]), scan_whole(folder, monkeypatch)
    assert (
        found.num_rows == N and abs(found.num_complete / whole.num_complete - 1) < 0.1
    )
    np.testing.assert_allclose(found.mean[1:4], whole.mean[1:4], atol=0.1)


def scan_whole(folder, monkeypatch):
    monkeypatch.undo()
    return scan(folder, "y", nulls="drop")
