"""Laws of many Parquet files as one table."""

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from natgrad.data._dataset import ParquetDataset, is_dataset
from natgrad.errors import InputError
from tests.data.test_parquet import write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files in two folders, and what is no data."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "year=2").mkdir()
    whole = arrow.table({"row": np.arange(100), "town": ["Ely", "Rye"] * 50})
    write(folder / "a.parquet", whole.slice(0, 30), [7])
    write(folder / "b.parquet", whole.slice(30, 20), [20])
    write(folder / "year=2" / "c.parquet", whole.slice(50), [11, 3])
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").mkdir()
    write(folder / ".hidden" / "d.parquet", whole, [100])
    return folder


def rows(dataset: ParquetDataset) -> list[int]:
    parts = [
        dataset.read(place, ["row"])["row"].to_pylist() for place in range(len(dataset))
    ]
    assert [len(part) for part in parts] == dataset.rows.tolist()
    return [row for part in parts for row in part]


@pytest.mark.parametrize(
    "paths",
    [
        ["."],
        ["**/*.parquet"],
        ["[ab].parquet", "year=2/c.parquet"],
        ["?.parquet", "year=2"],
        ["a.parquet", "b.parquet", "year*/*"],
        ["[!c].parquet", "year=2/[!ab].parquet"],
    ],
)
def test_files_are_found_in_any_way_and_read_in_order(folder, monkeypatch, paths):
    monkeypatch.chdir(folder)
    for given in ([str(folder / path) for path in paths], paths):
        if paths == ["**/*.parquet"]:
            dataset = ParquetDataset(given)
            assert dataset.total == 200  # what is asked for is not hidden
            continue
        dataset = ParquetDataset(given[0] if len(given) == 1 else given)
        assert dataset.total == 100 and dataset.names == ["row", "town"]
        assert rows(dataset) == list(range(100))
    assert len(ParquetDataset(f"file://{folder}/a.parquet")) == 5


def test_a_row_group_is_told_by_its_file_and_its_place_there(folder):
    dataset = ParquetDataset(folder)
    assert dataset.where(6).endswith("c.parquet, row group 0")
    assert dataset.where(4).endswith("a.parquet, row group 4")
    with pytest.raises(InputError, match="a.parquet: the table has no column 'z'"):
        dataset.read(0, ["z"])


def test_the_fingerprint_is_of_names_and_counts_and_not_of_the_folder(folder, tmp_path):
    whole = arrow.table({"row": np.arange(30)})
    prints = []
    for name, sizes in {"a": [7], "b": [7], "c": [8]}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.parquet", whole, sizes)
        prints.append(ParquetDataset(tmp_path / name).fingerprint())
    assert prints[0] == prints[1] != prints[2]
    assert prints[0] == ParquetDataset(tmp_path / "a" / "a.parquet").fingerprint()
    assert ParquetDataset([tmp_path / "a", tmp_path / "b"]).fingerprint() not in prints


def test_few_footers_are_kept_and_nothing_changes_by_it(folder, monkeypatch):
    monkeypatch.setattr("natgrad.data._dataset.FOOTERS", 1)
    dataset = ParquetDataset(folder)
    assert rows(dataset) == list(range(100)) and len(dataset._footers) == 1
    assert ParquetDataset([folder / "a.parquet"] * 50).total == 1500


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.parquet", "has no Parquet files; it should be a folder"),
        ("*.csv", "matches no file"),
        ("s3x://bucket/a", "cannot be opened"),
    ],
)
def test_what_is_not_there_is_said(folder, path, message):
    path = path if "://" in path else str(folder / path)
    with pytest.raises(InputError, match=message):
        ParquetDataset(path)


def test_damaged_and_empty_and_changed_files_are_named(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="bad.parquet cannot be read"):
        ParquetDataset(tmp_path)
    (tmp_path / "bad.parquet").unlink()
    nothing = arrow.table({"a": arrow.array([], "f8")})
    parquet.write_table(nothing, tmp_path / "empty.parquet")
    with pytest.raises(InputError, match="empty.parquet has no rows"):
        ParquetDataset(tmp_path)
    write(tmp_path / "some.parquet", {"a": np.arange(1000.0)}, [500])
    dataset = ParquetDataset(tmp_path)
    assert dataset.total == 1000
    write(tmp_path / "some.parquet", {"a": np.arange(30.0)}, [30])
    with pytest.raises(InputError, match=r"some.parquet, row group \d cannot be read"):
        dataset.read(1, ["a"])


def test_a_page_that_does_not_meet_its_checksum_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = arrow.table({"a": np.arange(1000.0)})
    options = {"compression": "none", "use_dictionary": False}
    parquet.write_table(table, path, write_page_checksum=True, **options)
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)
    with pytest.raises(InputError, match="row group 0 cannot be read: .*checksum"):
        ParquetDataset(path).read(0, ["a"])


def test_folders_patterns_and_addresses_are_datasets_and_files_are_not(folder):
    for path in (str(folder), "data/*.parquet", "s3://bucket/a.parquet"):
        assert is_dataset(path)
    assert not is_dataset(str(folder / "a.parquet")) and not is_dataset("houses.csv")
