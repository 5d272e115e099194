"""Laws of predictions for a data set: each row once, whoever makes it and is killed."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from natgrad._cli import models as model_files, predicting
from natgrad.data._encoding import Category, Number
from natgrad.data._schema import EncodedRows, Schema
from natgrad.errors import CheckpointError, InputError
from natgrad.sklearn import GPClassifier, GPRegressor


LEVELS = [0.1, 0.9]
# The command, with parts and slices of so many rows.
SMALL = """
import sys
from natgrad._cli import main, predicting
predicting.PART, predicting.SLICE = map(int, sys.argv[1:3])
main(sys.argv[3:])
"""


def rows_of(count: int, seed: int = 0, nulls: float = 0.0) -> arrow.Table:
    """Rows with an id, inputs `a` and `town`, and a share of nulls in `a`."""
    rng = np.random.default_rng(seed)
    a, town = rng.normal(size=count), rng.choice(["Bath", "Ely"], count)
    holes = arrow.array(a, mask=rng.random(count) < nulls)
    ids = np.arange(count) + 1_000_000 * seed
    return arrow.table({"id": ids, "a": holes, "town": town})


def write_groups(path: Path, table: arrow.Table, sizes: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(path, table.schema, write_page_checksum=True) as file:
        start = 0
        for size in sizes:
            file.write_table(table.slice(start, size))
            start += size


def whole(folder: Path) -> arrow.Table:
    """All parts of a folder, in their order."""
    parts = sorted(folder.glob("*.parquet"))
    return arrow.concat_tables([parquet.read_table(part) for part in parts])


def ids_of(dataset: Path) -> list[int]:
    return parquet.read_table(dataset)["id"].to_pylist()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A regressor, another, and a classifier, of rows as above."""
    folder = tmp_path_factory.mktemp("models")
    schema = Schema((Number("a"), Category("town", ("Bath", "Ely"))), nulls="drop")
    x = schema.encode(rows_of(60)).x
    y = np.sin(2 * x[:, 0]) + x[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        number = GPRegressor("gaussian", n_inducing=8, max_iter=3, verbose=False)
        label = GPClassifier(n_inducing=8, max_iter=3, verbose=False)
        number.fit(x, y)
        label.fit(x, np.where(y > 0, "yes", "no"))
    for name, estimator in {"one": number, "two": number, "class": label}.items():
        likelihood = "bernoulli" if estimator is label else "gaussian"
        beside = {"target": name, "likelihood": likelihood, "rows": 60}
        estimator.schema_ = schema
        estimator.feature_names_in_ = np.array(schema.names, dtype=object)
        estimator.n_features_in_ = len(schema.names)
        estimator.save(folder / f"{name}.natgrad", metadata=beside)
    return folder


@pytest.fixture(scope="module")
def made(models):
    """Predicts as one process of some, with parts and slices of so many rows."""

    def run(data, out, process=0, processes=1, part=700, size=256, **given):
        options = {"model": "one", "levels": LEVELS, "keep": "id"} | given
        options["model"] = str(models / f"{options['model']}.natgrad")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(predicting, "PART", part)
            patch.setattr(predicting, "SLICE", size)
            patch.setenv("NATGRAD_PROCESS_ID", str(process))
            patch.setenv("NATGRAD_NUM_PROCESSES", str(processes))
            command = {"data": str(data), "out": str(out), "is_json": True}
            predicting.predict_dataset(**options, **command)

    return run


@pytest.fixture
def dataset(tmp_path):
    """Two files of 1,000 and 1,500 rows, in row groups of 250."""
    for seed, (name, count) in enumerate({"a": 1000, "b": 1500}.items()):
        sizes = [250] * (count // 250)
        write_groups(tmp_path / f"data/{name}.parquet", rows_of(count, seed), sizes)
    return tmp_path / "data"


GROUPS = st.lists(
    st.lists(st.sampled_from([0, 1, 60, 100]), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
).filter(lambda files: sum(map(sum, files)) > 0)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=GROUPS,
    part=st.sampled_from([50, 160, 10_000]),
    size=st.sampled_from([40, 4096]),
    nulls=st.sampled_from([0.0, 0.2, 1.0]),
    kind=st.sampled_from(["one", "class"]),
)
@example(files=[[5000, 1], [1]], part=5000, size=4097, nulls=0.1, kind="one")
@example(files=[[1, 100], [60]], part=50, size=64, nulls=1.0, kind="class")
def test_parts_in_a_row_are_the_table_for_any_processes(
    tmp_path, models, made, files, part, size, nulls, kind
):
    shutil.rmtree(tmp_path)
    pieces = []
    for number, sizes in enumerate(files):
        table = rows_of(sum(sizes), number, nulls)
        write_groups(tmp_path / f"data/f{number}.parquet", table, sizes)
        pieces.append(table)
    (tmp_path / "whole").mkdir()
    # A row without a null at the end, as a table should have one.
    table = arrow.concat_tables([*pieces, rows_of(1)])
    data, out = (str(tmp_path / "whole" / name) for name in ("t.parquet", "p.parquet"))
    parquet.write_table(table, data)
    predicting.predict_table(
        str(models / f"{kind}.natgrad"), data, out, LEVELS, "town,id", True
    )
    expected = parquet.read_table(out).slice(0, len(table) - 1)

    options = {"part": part, "size": min(size, part), "model": kind, "keep": "town,id"}
    seen = []
    for processes in (1, 2, 3):
        folder = tmp_path / f"by{processes}"
        for process in reversed(range(processes)):
            made(tmp_path / "data", folder, process, processes, **options)
        seen.append(contents(folder))
    assert whole(tmp_path / "by1").combine_chunks().equals(expected.combine_chunks())
    # The folder is one table to anybody who reads it.
    assert parquet.read_table(tmp_path / "by1").num_rows == len(expected)
    assert seen[0] == seen[1] == seen[2]
    names = sorted(set(seen[0]) - {"_natgrad.json"})
    assert [int(name[5:10]) for name in names] == list(range(len(names)))
    for name in names:
        rows = parquet.read_metadata(tmp_path / "by1" / name).num_rows
        assert rows <= max(part, *map(max, files))


def test_what_was_done_is_said_and_not_done_again(dataset, tmp_path, made, capsys):
    out = tmp_path / "out"

    def said(process, processes):
        made(dataset, out, process, processes)
        return json.loads(capsys.readouterr().out)

    first = said(1, 2)
    # 500 and 500 rows of one file, and 500 three times of the other.
    assert (first["parts"], first["missing"], first["is_complete"]) == (5, 3, False)
    assert (first["parts_written"], first["rows_written"]) == (2, 1000)
    times = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    second = said(0, 1)
    assert second["is_complete"] and second["rows"] == 2500
    assert (second["parts_written"], second["rows_written"]) == (3, 1500)
    assert (second["parts_found"], second["rows_found"]) == (2, 1000)
    assert second["columns"] == ["id", "mean", "std", "q0.1", "q0.9"]
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert said(0, 1)["rows_written"] == 0
    assert predicting._summary(first).endswith(
        "3 of 5 parts left, which other processes write"
    )
    assert "process 1 of 2: wrote 1,000 rows in 2 parts\n" in predicting._summary(first)
    assert "and found 1,000 in 2 parts done\n" in predicting._summary(second)
    assert predicting._summary(second).endswith(
        "is complete: 2,500 rows of id, mean, std, q0.1, q0.9 in 5 parts"
    )


def test_another_command_into_a_folder_is_refused(dataset, tmp_path, made):
    out = tmp_path / "out"
    made(dataset, out, 0, 2)
    before = contents(out)
    for changed, message in [
        ({"model": "two"}, "otherwise: model was [0-9a-f]{12} and is [0-9a-f]{12};"),
        ({"keep": "id,town"}, "otherwise: keep was id and is id,town; give the same"),
        ({"levels": []}, "otherwise: quantiles was 0.1,0.9 and is none; give the same"),
        ({"part": 300}, "otherwise: rows_per_part was 700 and is 300; give the same"),
        (
            {"data": dataset / "a.parquet"},
            "otherwise: data was .* rows was 2500 and is",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            made(**{"data": dataset, "out": out} | changed)
    # The same rows, groups and bytes, but for one value.
    table = parquet.read_table(dataset / "b.parquet")
    a = table["a"].to_numpy().copy()
    a[a.argmax()] += 1
    size = (dataset / "b.parquet").stat().st_size
    write_groups(
        dataset / "b.parquet", table.set_column(1, "a", arrow.array(a)), [250] * 6
    )
    assert (dataset / "b.parquet").stat().st_size == size
    with pytest.raises(InputError, match="otherwise: data was [0-9a-f]{12} and is"):
        made(dataset, out)
    assert contents(out) == before
    (out / "_natgrad.json").write_text("{")
    with pytest.raises(InputError, match="_natgrad.json cannot be read"):
        made(dataset, out)
    (out / "_natgrad.json").unlink()
    with pytest.raises(InputError, match="has no _natgrad.json, but part-00000-a.parq"):
        made(dataset, out)


def test_a_part_that_is_not_of_this_command_or_not_whole_is_made(
    dataset, tmp_path, made
):
    out, other = tmp_path / "out", tmp_path / "other"
    made(dataset, out)
    made(dataset, other, model="two", keep="")
    before = contents(out)
    shutil.copy(other / "part-00001-a.parquet", out)
    (out / "part-00002-b.parquet").write_bytes(before["part-00002-b.parquet"][:-9])
    made(dataset, out)
    assert contents(out) == before


def test_left_overs_of_own_parts_are_removed_and_of_no_other(dataset, tmp_path, made):
    out = tmp_path / "out"
    made(dataset, out, 0, 2)
    names = ["part-00001-a.parquet", "part-00002-b.parquet", "_natgrad.json", "mine"]
    for name in names:
        (out / f".{name}.tmp").touch()
    made(dataset, out, 1, 2)
    left = {path.name for path in out.iterdir() if path.name[0] == "."}
    assert left == {f".{name}.tmp" for name in names[1:]}


def test_processes_that_begin_together_agree(dataset, tmp_path):
    for number in range(20):
        folder = tmp_path / f"out{number}"
        with ThreadPoolExecutor(8) as pool:
            marks = pool.map(
                lambda _, f=folder: predicting._marked(f, {"rows": 1}), range(8)
            )
        assert len(set(marks)) == 1
        assert [path.name for path in folder.iterdir()] == ["_natgrad.json"]


def test_damage_is_said_by_file_and_row_group_and_other_parts_stay(
    dataset, tmp_path, made
):
    path, out = dataset / "b.parquet", tmp_path / "out"
    sound = path.read_bytes()
    column = parquet.read_metadata(path).row_group(3).column(1)
    place = column.dictionary_page_offset + column.total_compressed_size // 2
    path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    with pytest.raises(InputError, match="b.parquet, row group 3 cannot be read"):
        made(dataset, out)
    there = {path.name for path in out.iterdir()}
    parts = {f"part-0000{k}-{name}.parquet" for k, name in enumerate("aab")}
    assert there == {"_natgrad.json", *parts}
    path.write_bytes(sound)
    made(dataset, out)
    assert whole(out)["id"].to_pylist() == ids_of(dataset)


def test_what_cannot_be_encoded_is_said_by_file_group_and_row(dataset, tmp_path, made):
    sizes = np.where(np.arange(1000) == 777, np.inf, 1.0)
    table = rows_of(1000, 3).set_column(1, "a", arrow.array(sizes))
    write_groups(dataset / "c.parquet", table, [100, 900])
    # Slices of 256 rows: the third begins at row 668 of the second group, 9 before.
    message = (
        "c.parquet, row group 1 from row 668: column 'a' has 1 infinite .* in row 9"
    )
    with pytest.raises(InputError, match=message):
        made(dataset, tmp_path / "out", part=2000)


@contextlib.contextmanager
def no_larger_than(size):
    """No file can be written that has more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_no_part_that_is_complete(dataset, tmp_path, made):
    write_groups(dataset / "c.parquet", rows_of(5000, 3), [5000])
    out = tmp_path / "out"
    with (
        no_larger_than(60_000),
        pytest.raises(CheckpointError, match="part-00005-c.parquet could not be wr"),
    ):
        made(dataset, out)
    assert len(contents(out)) == 6  # and no draft
    made(dataset, out)
    assert whole(out)["id"].to_pylist() == ids_of(dataset)


def test_where_predictions_may_go(dataset, tmp_path, made, models):
    for out, message in {
        "p.parquet": "DATA is a data set; its predictions are many files",
        "-": "DATA is a data set",
        "s3://bucket/p": "it should be a folder that is mounted here",
        str(dataset / "p"): "in the folder .*, which is DATA; predictions should",
        str(dataset / "a.parquet/"): "DATA is a data set",
        __file__: "which is a file; it should be a folder",
    }.items():
        with pytest.raises(InputError, match=message):
            made(dataset, out)
    assert not (dataset / "p").exists()
    table = rows_of(1).rename_columns(["mean", "a", "town"])
    for names, message in {
        ("mean", "a", "town"): "--keep has the column 'mean', and so have",
        ("mean", "a"): "c.parquet: the table has no column 'town'; it has mean, a",
    }.items():
        write_groups(dataset / "c.parquet", table.select(names), [1])
        with pytest.raises(InputError, match=message):
            made(dataset / "c.parquet", tmp_path / "out", keep="mean")
    assert not (tmp_path / "out").exists()
    one = str(dataset / "a.parquet")
    with pytest.raises(InputError, match="give a folder only for many files"):
        predicting.predict_table(
            str(models / "one.natgrad"), one, "folder", [], "", False
        )


def test_quantiles_of_normal_targets_are_those_of_the_estimator(models):
    model = model_files.open_model(models / "one.natgrad")
    x = EncodedRows(model.schema.encode(rows_of(100)).x)
    found = model_files.predictions(model, x, np.ones(100, bool), LEVELS)
    expected = model.estimator.predict(x, quantiles=LEVELS)
    columns = np.stack([found[f"q{level}"] for level in LEVELS], axis=1)
    np.testing.assert_allclose(columns, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.nightly
def test_each_row_is_there_once_after_any_kills(tmp_path, models, made, environment):
    for seed in range(3):
        path = tmp_path / f"data/{seed}.parquet"
        write_groups(path, rows_of(100_000, seed), [2000] * 50)
    dataset, out = tmp_path / "data", tmp_path / "out"
    options = {"part": 6000, "size": 4096, "keep": "id"}

    def begun(process):
        command = (
            f"6000 4096 predict {models}/one.natgrad {dataset}/*.parquet --out {out}"
        )
        command += " --keep id --quantiles 0.1,0.9 --json"
        place = {"NATGRAD_PROCESS_ID": str(process), "NATGRAD_NUM_PROCESSES": "2"}
        return subprocess.Popen(
            [sys.executable, "-c", SMALL, *command.split()],
            env=environment | place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def count(pattern):
        """How many files are there of the first process, whose parts are even."""
        names = [path.name.lstrip(".") for path in out.glob(pattern)]
        return sum(int(name[5:10]) % 2 == 0 for name in names)

    other = begun(1)
    for number in (0, 6, 15):
        process = begun(0)
        # In the middle of a part, once there are so many.
        while process.poll() is None and not (
            count("part*.parquet") >= number and count(".part*.tmp")
        ):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
        assert process.returncode == -signal.SIGKILL, error[-2000:]
        # 17 parts to a file, so 26 of 51 are of the first process.
        assert count("part*.parquet") < 26
    said, error = other.communicate()
    assert other.returncode == 0, error[-2000:]
    assert json.loads(said)["rows_written"] == 148_000
    made(dataset, out, 0, 2, **options)
    assert not [name for name in os.listdir(out) if name[0] == "."]
    found = whole(out)
    assert found["id"].to_pylist() == ids_of(dataset)
    made(dataset, tmp_path / "once", 0, 1, **options)
    assert contents(tmp_path / "once") == contents(out)
