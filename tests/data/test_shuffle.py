"""Laws of tables that are put in random order."""

import errno
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from natgrad.data import Parquet, shuffle
from natgrad.data._dataset import ParquetDataset
from natgrad.data._parquet import noise
from natgrad.errors import CheckpointError, InputError, InputWarning
from tests.data.test_parquet import write


N = 6000
MODULE = sys.modules["natgrad.data._shuffle"]
COMMAND = [sys.executable, "-c", "from natgrad._cli import main; main()", "shuffle"]


def table() -> arrow.Table:
    """Columns of all kinds, in the order of the first."""
    town = arrow.array([["Ely", "Rye", None][row % 3] for row in range(N)])
    return arrow.table(
        {
            "row": np.arange(N),
            "y": np.arange(N) / N,
            "town": town.dictionary_encode(),
            "name": [f"n{row}" * (row % 4) for row in range(N)],
            "list": arrow.array([[row, row + 1] for row in range(N)]),
            "when": arrow.array(np.arange(N), arrow.timestamp("us")),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sorted")
    write(folder / "a.parquet", table().slice(0, 2500), [100])
    write(folder / "b.parquet", table().slice(2500), [70])
    return folder


@pytest.fixture
def small(monkeypatch):
    """Buckets so small that there are several."""
    monkeypatch.setattr(MODULE, "BUCKET", 2**16)
    monkeypatch.setattr(MODULE, "BUFFER", 2**15)


def read(folder) -> arrow.Table:
    paths = sorted(folder.glob("*.parquet"))
    return arrow.concat_tables([parquet.read_table(path) for path in paths])


def test_all_rows_are_there_once_with_all_their_columns(folder, tmp_path, small):
    written = shuffle(folder, tmp_path / "out", rows_per_group=150)
    found = read(tmp_path / "out")
    assert found.sort_by("row").to_pydict() == table().to_pydict()
    assert found.schema.equals(table().schema)
    dataset = ParquetDataset(tmp_path / "out")
    assert written == (N, len(set(dataset.paths)), len(dataset)) and written.files > 3
    assert dataset.rows.max() <= 150 and np.median(dataset.rows) > 100
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_order_is_random_and_a_function_of_the_seed(folder, tmp_path, small):
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        shuffle(folder, tmp_path / name, 150, seed)
    rows = {name: read(tmp_path / name)["row"].to_numpy() for name in "abc"}
    np.testing.assert_array_equal(rows["a"], rows["b"])
    first = [_rows_of(tmp_path / name / "part-00000.parquet") for name in "ac"]
    assert len(first[0] & first[1]) < min(map(len, first)) / 2
    assert (rows["a"] != rows["c"]).mean() > 0.99
    for order in rows["a"], rows["c"]:
        for lag in (1, 2, 50):
            assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 4 / np.sqrt(N)
        assert abs(np.corrcoef(order, np.arange(N))[0, 1]) < 4 / np.sqrt(N)


def _rows_of(path) -> set[int]:
    return set(parquet.read_table(path)["row"].to_pylist())


def test_batches_of_it_are_as_of_independent_rows(folder, tmp_path, small):
    with pytest.warns(InputWarning, match="natgrad shuffle IN OUT"):
        Parquet(folder, "y", ["row"], batch_size=64, shards=4, pool=1)
    shuffle(folder, tmp_path / "out", 70)
    source = Parquet(tmp_path / "out", "y", ["row"], batch_size=64, shards=4, pool=1)
    assert noise(source.dataset, "y", 64, 4) < 1.3
    means = source.take(0, 2 * source.plan.batches).y.mean(1)
    assert means.std() / (np.sqrt(1 / 12) / np.sqrt(64)) == pytest.approx(1, abs=0.25)


def test_what_is_there_is_not_lost(folder, tmp_path):
    out = tmp_path / "out"
    shuffle(folder, out)
    with pytest.raises(InputError, match="out has a table already; overwrite=True"):
        shuffle(folder, out)
    shuffle(folder, out, 1000, overwrite=True)
    assert len(ParquetDataset(out)) == 6
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="'notes.txt', which shuffle did not make"):
        shuffle(folder, out, overwrite=True)
    for place in (folder, folder.parent):
        with pytest.raises(InputError, match="holds the table itself"):
            shuffle(folder, place, overwrite=True)
    with pytest.raises(InputError, match="is a file; it should be a folder"):
        shuffle(folder, out / "notes.txt", overwrite=True)


def test_files_of_other_types_are_refused_by_name(folder, tmp_path):
    for name, column in {"a": [1, 2], "b": ["x", "y"]}.items():
        write(tmp_path / f"{name}.parquet", arrow.table({"v": column}), [2])
    with pytest.raises(InputError, match="b.parquet, row group 0 has other types"):
        shuffle(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists() and len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_is_said_in_one_line_and_leaves_nothing(
    folder, tmp_path, monkeypatch
):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "Error writing bytes to file.")

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(CheckpointError, match="out could not be written: No space"):
        shuffle(folder, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_the_folder_and_killed_leaves_none(folder, tmp_path):
    said = subprocess.run(
        [*COMMAND, str(folder), "out", "--rows-per-group", "1000"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "6,000 rows, 6 row groups, 1 file in out\n"
    command = [sys.executable, "-c", KILLED]
    process = subprocess.Popen([*command, str(folder), "other"], cwd=tmp_path)
    while not (tmp_path / ".other.unfinished" / "0.arrow").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".other.unfinished").is_dir()
    assert not (tmp_path / "other").exists()
    shuffle(folder, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


KILLED = """
import sys, time
import natgrad.data
module = sys.modules["natgrad.data._shuffle"]
module._write = lambda *_: time.sleep(60)
module.shuffle(*sys.argv[1:])
"""
