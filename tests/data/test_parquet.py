"""Laws of batches that come from files."""

import functools
import signal

import jax
import numpy as np
import optax
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings, strategies as st

import natgrad
from natgrad import gp
from natgrad.data import Arrays, Batch, Parquet
from natgrad.data._batches import Batches, Sample
from natgrad.data._dataset import ParquetDataset
from natgrad.data._encoding import Category, Number
from natgrad.data._parquet import noise
from natgrad.data._schema import Schema
from natgrad.errors import CheckpointError, InputError, InputWarning


N, ROWS = 1000, 32


def columns(number: int = N) -> dict[str, np.ndarray]:
    """Rows that can be told by their target, and inputs that belong to it."""
    y = np.random.default_rng(0).permutation(number).astype(float)
    return {"a": (2 * y).astype("f4"), "b": y.astype("i2"), "y": y.astype("f4")}


def write(path, table, sizes):
    """A file with row groups of these sizes, over and over."""
    table = table if isinstance(table, arrow.Table) else arrow.table(table)
    with parquet.ParquetWriter(path, table.schema) as file:
        begin, at = 0, 0
        while begin < len(table):
            size = sizes[at % len(sizes)]
            file.write_table(table.slice(begin, size), row_group_size=size)
            begin, at = begin + size, at + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    table = arrow.table(columns())
    write(folder / "a.parquet", table.slice(0, 400), [37, 11, 60])
    write(folder / "b.parquet", table.slice(400), [25])
    return folder


@functools.cache
def whole(folder) -> Batch:
    source = Parquet(folder, "y", batch_size=ROWS, seed=3)
    return source.take(0, 3 * source.plan.batches)


def test_each_pass_has_every_row_once_but_for_a_tail(folder):
    source = Parquet(folder, "y", batch_size=ROWS, seed=3)
    assert isinstance(source, Batches)
    assert source.fraction == ROWS / N and source.num_data == N
    x, y, weight, _ = whole(folder)
    assert x.dtype == y.dtype == weight.dtype == np.float64
    assert x.shape == (len(y), ROWS, 2)
    np.testing.assert_array_equal(x[..., 0], 2 * y)
    np.testing.assert_array_equal(x[..., 1], y)
    np.testing.assert_array_equal(weight, np.full_like(y, N / ROWS))
    passes = y.reshape(3, -1)
    for one in passes:
        assert len(np.unique(one)) == one.size > N - ROWS - source.shards
    assert not (passes[0] == passes[1]).all()


@given(st.lists(st.tuples(st.integers(0, 89), st.integers(1, 4)), max_size=6))
@settings(max_examples=10, deadline=None)
def test_the_batch_of_a_step_depends_on_seed_and_step_alone(folder, visits):
    source, expected = Parquet(folder, "y", batch_size=ROWS, seed=3), whole(folder)
    for step, number in visits:
        number = min(number, len(expected.y) - step)
        taken = source.take(step, number)
        for ours, theirs in zip(*map(jax.tree.leaves, (taken, expected)), strict=True):
            np.testing.assert_array_equal(ours, theirs[step : step + number])


def test_other_seeds_give_other_batches(folder):
    other = Parquet(folder, "y", batch_size=ROWS, seed=4).take(0, 3)
    assert not (other.y == whole(folder).y[:3]).all()


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_shares_put_together_are_the_batch(folder, processes):
    source = Parquet(folder, "y", batch_size=ROWS, seed=3)
    source.take(0, 1)
    assert source._held and not source.share(0, processes)._held
    columns, weight = Batch(*(np.arange(N)[:, None], np.arange(N))), ROWS
    for steps in ((0, 2), (28, 5)):
        for every in (source, Arrays(columns, ROWS), Sample(columns, ROWS)):
            parts = [every.share(p, processes) for p in range(processes)]
            assert {(part.fraction, part.num_data) for part in parts} == {
                (weight / N, N)
            }
            taken = [part.take(*steps) for part in parts]
            joined = lambda *parts: np.concatenate(parts, axis=1)
            together = jax.tree.map(joined, *taken)
            jax.tree.map(np.testing.assert_array_equal, together, every.take(*steps))


def test_what_cannot_be_shared_is_refused_with_a_remedy(folder):
    source = Parquet(folder, "y", batch_size=ROWS)
    with pytest.raises(InputError, match="by 3 processes; use shards=3.*natgrad shuf"):
        source.share(0, 3)
    with pytest.raises(InputError, match="process is 2 of 2; it should be from 0 to 1"):
        source.share(2, 2)
    with pytest.raises(
        InputError, match="batch_size is 30, which 8 shards.*batch_size=32"
    ):
        Parquet(folder, "y", batch_size=30)
    with pytest.raises(InputError, match="32 rows.*by 3 processes; use batch_size=30"):
        Arrays(columns(), 32).share(0, 3)
    with pytest.raises(InputError, match="pool is 0; it should be at least 1"):
        Parquet(folder, "y", pool=0)


def test_shards_are_no_more_than_row_groups_and_rows_no_more_than_the_table(tmp_path):
    write(tmp_path / "a.parquet", columns(50), [9])  # six groups
    source = Parquet(tmp_path, "y", batch_size=64)
    assert source.shards == 4 and source.batch_size == 48 and source.plan.batches == 1
    assert len(np.unique(source.take(5, 1).y)) == 48
    with pytest.raises(InputError, match="4 shards of 6 row groups.*by 8 processes"):
        source.share(0, 8)


def test_memory_holds_two_pools_of_each_shard_and_reads_no_more(folder, monkeypatch):
    reads, at_once = [], []
    source = Parquet(folder, "y", batch_size=ROWS, seed=3, pool=2)
    monkeypatch.setattr(source.dataset, "read", _counted(source.dataset.read, reads))
    steps = source.plan.batches
    for step in range(steps):
        source.take(step, 1)
        at_once.append(len(source._held) + len(source._ahead))
        assert set(source._ahead) <= set(source._held) == set(range(8))
    assert max(at_once) <= 16 and np.mean(at_once) < 12
    source._thread.shutdown()
    groups, shards, pool = len(source.dataset), source.shards, source.pool
    assert groups <= len(reads) <= groups + 2 * shards + pool * shards


def _counted(read, reads):
    def inner(place, columns):
        reads.append(place)
        return read(place, columns)

    return inner


def test_an_error_of_reading_ahead_is_told_where_its_rows_are_wanted(tmp_path):
    path = tmp_path / "gone.parquet"
    write(path, columns(400), [10])
    source = Parquet(tmp_path, "y", batch_size=16)
    good = Parquet(tmp_path, "y", batch_size=16).take(0, 3)
    source.take(0, 1)
    text = path.read_bytes()
    path.write_bytes(text[:4] + bytes(len(text) - 4))
    np.testing.assert_array_equal(source.take(1, 2).y, good.y[1:])
    with pytest.raises(InputError, match=r"gone.parquet, row group \d+ cannot be read"):
        for step in range(3, 100):
            source.take(step, 1)
    assert 3 < step < 24
    path.write_bytes(text)
    np.testing.assert_array_equal(source.take(0, 3).y, good.y)


def test_a_run_from_files_goes_on_as_if_nothing_had_happened(folder, tmp_path):
    loss = lambda params, batch: (batch.weight * (batch.y - params * 1e-3) ** 2).sum()

    def run(source, steps, **options):
        tx, options = optax.sgd(1e-9), {"progress": False, "log_every": 5, **options}
        start = jax.numpy.zeros(())
        return natgrad.fit(loss, start, source, optimizer=tx, steps=steps, **options)

    make = lambda **other: Parquet(folder, "y", ["a"], batch_size=ROWS, **other)
    whole = run(make(), 40).params
    path = tmp_path / "run"
    stopped = run(make(), 40, checkpoint=path, callbacks=[_stopped_at(20)])
    assert stopped.history[-1].step < 40
    assert run(make(), 40, checkpoint=path, resume=True).params == whole != 0
    with pytest.raises(CheckpointError, match="a different run: data was"):
        run(make(pool=2), 60, checkpoint=path, resume=True)


def _stopped_at(step):
    def callback(record, params):
        if record.step == step:
            signal.raise_signal(signal.SIGINT)

    return callback


def test_a_model_of_other_inputs_is_refused_before_anything_is_read(folder):
    x = np.random.default_rng(0).normal(size=(9, 3))
    model = gp.initialize(x, gp.likelihoods.Gaussian(0.1), 2)
    with pytest.raises(InputError, match="of the table have shape .0, 2.*rows of 3"):
        gp.fit(model, Parquet(folder, "y", batch_size=ROWS), steps=1)


def test_rows_with_a_null_have_no_weight_and_the_values_of_another(tmp_path):
    table = columns(400)
    a = [None if y % 5 == 0 else 2 * y for y in table["y"]]
    y = [None if y % 7 == 0 else float(y) for y in table["y"]]
    gone = {v for v in range(400) if v % 5 == 0 or v % 7 == 0}
    nulls = arrow.table({"a": a, "b": table["b"], "y": y})
    write(tmp_path / "a.parquet", nulls, [40])
    drop = Schema((Number("a"), Number("b")), "drop")
    source = Parquet(
        tmp_path, "y", batch_size=16, schema=drop, shards=4, num_complete=7
    )
    assert source.num_data == 7
    batch = source.take(0, source.plan.batches)
    assert np.isfinite(batch.x).all() and np.isfinite(batch.y).all()
    is_complete = batch.weight > 0
    np.testing.assert_array_equal(batch.weight[is_complete], 400 / 16)
    assert set(batch.y[is_complete]) == set(range(400)) - gone
    np.testing.assert_array_equal(batch.x[..., 0], 2 * batch.y)
    for kind, error in {"error": "'a' has . nulls", "mean": "'y' has .* nulls"}.items():
        mean = 1.0 if kind == "mean" else None
        schema = Schema((Number("a", mean), Number("b")), kind)
        source = Parquet(tmp_path, "y", batch_size=16, schema=schema)
        with pytest.raises(InputError, match=rf"a.parquet, row group \d+: .*{error}"):
            source.take(0, 20)
    filled = Schema((Number("a", -1.0),), "mean")
    batch = Parquet(tmp_path, "b", batch_size=16, schema=filled).take(0, 24)
    is_null = batch.y % 5 == 0
    np.testing.assert_array_equal(batch.x[is_null][:, 0], -1.0)
    assert (batch.weight > 0).all()


def test_a_pool_without_a_whole_row_is_filled_from_elsewhere(tmp_path):
    y = arrow.array([None] * 60 + [5.0] * 10)
    write(tmp_path / "a.parquet", arrow.table({"a": np.arange(70.0), "y": y}), [10])
    drop = Schema((Number("a"),), "drop")
    batch = Parquet(tmp_path, "y", batch_size=8, schema=drop, pool=1, shards=2).take(
        0, 8
    )
    assert (batch.y == 5).all() and np.isfinite(batch.x).all()
    assert 4 <= (batch.weight > 0).sum() <= 10
    none = arrow.table({"a": np.arange(3.0), "y": arrow.array([None] * 3, "f8")})
    write(tmp_path / "a.parquet", none, [3])
    with pytest.raises(InputError, match="there is no row without a null"):
        Parquet(tmp_path, "y", schema=drop).take(0, 1)


def test_batches_are_scaled_and_labels_coded(tmp_path):
    table = columns(96)
    labels = np.array(["low", "mid", "top"])[(table["b"] // 32).astype(int)]
    texts = arrow.array(labels).dictionary_encode()
    mixed = arrow.table({"a": table["a"], "c": texts, "is_top": labels == "top"})
    write(tmp_path / "a.parquet", mixed, [10])
    schema = Schema((Number("a"), Category("c", ("low", "mid", "top"))))
    source = Parquet(
        tmp_path,
        "is_top",
        batch_size=16,
        schema=schema,
        centre=[1.0, 0, 0, 0],
        scale=[2.0, 1, 1, 1],
        encode=lambda y: np.searchsorted(["false", "true"], y),
        dtype=np.float32,
    )
    x, y, weight, _ = source.take(0, source.plan.batches)
    assert x.dtype == weight.dtype == np.float32
    np.testing.assert_array_equal(x[..., 3], y)
    np.testing.assert_array_equal(x[..., 1:].sum(-1), np.ones_like(y))
    value = 2 * x[..., 0] + 1
    np.testing.assert_array_equal(y, value >= 128)
    with pytest.raises(InputError, match="'c' is of strings.*natgrad.data.scan"):
        Parquet(tmp_path, "is_top")


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        ("f4 i2", "f4"),
        ("f4 i4", "f8"),
        ("f8 i2", "f8"),
        ("f2 u1", "f4"),
        ("f4 ?", "f4"),
    ],
)
def test_numbers_are_kept_exactly_and_in_32_bits_where_these_do(tmp_path, kinds, dtype):
    values = np.random.default_rng(1).uniform(0, 200, 64)
    first, second = (values.astype(kind) for kind in kinds.split())
    table = arrow.table({"a": first, "b": second, "y": np.arange(64)})
    write(tmp_path / "a.parquet", table, [8])
    source = Parquet(tmp_path, "y", batch_size=8)
    assert np.dtype(source.reader.dtype) == dtype
    x, y, *_ = source.take(0, 8)
    np.testing.assert_array_equal(x[..., 0], first.astype(float)[y.astype(int)])
    np.testing.assert_array_equal(x[..., 1], second.astype(float)[y.astype(int)])


def test_another_order_or_table_has_another_fingerprint(folder):
    make = lambda **other: Parquet(folder, "y", batch_size=ROWS, **other).fingerprint()
    prints = [make(), make(shards=4), make(pool=2), make(inputs=["a"])]
    assert len(set(prints)) == 4 and prints[0] == make(seed=9)


def test_a_sorted_table_is_said_and_the_noise_is_as_measured(tmp_path):
    y = np.repeat(np.arange(100.0), 50) + np.random.default_rng(0).normal(size=5000)
    write(tmp_path / "a.parquet", {"a": y, "y": y}, [50])
    with pytest.warns(InputWarning, match="seems sorted.*natgrad shuffle IN OUT"):
        source = Parquet(tmp_path, "y", batch_size=64, shards=4, pool=1)
    means = source.take(0, 4 * source.plan.batches).y.mean(1)
    measured = means.std() / (y.std() / np.sqrt(64))
    foretold = noise(source.dataset, "y", 64, 4)
    assert 3 < foretold < 5 and abs(measured / foretold - 1) < 0.2
    assert noise(source.dataset, "y", 64, 100) == 1
    # Half of all groups leave half of the variance between them.
    excess = [
        groups * (noise(source.dataset, "y", 64, groups) ** 2 - 1) for groups in (4, 50)
    ]
    assert excess[1] / excess[0] == pytest.approx(0.5 / 0.96, rel=0.1)
    assert noise(source.dataset, "y", 5000, 4) < foretold  # a batch has many groups
    mixed = np.random.default_rng(0).permutation(y)
    write(tmp_path / "a.parquet", {"a": y, "y": mixed}, [50])
    assert noise(ParquetDataset(tmp_path), "y", 64, 4) < 1.5
    names = arrow.array(np.repeat(["a", "b", "c", "d"], 1250))
    write(tmp_path / "a.parquet", arrow.table({"a": y, "y": names}), [50])
    with pytest.warns(InputWarning, match="seems sorted"):
        Parquet(tmp_path, "y", batch_size=64, shards=4, pool=1)


def test_large_row_groups_are_said(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", columns(100), [50])
    monkeypatch.setattr("natgrad.data._parquet.MOST_ROWS", 49)
    with pytest.warns(InputWarning, match="up to 50 rows.*natgrad shuffle IN OUT"):
        Parquet(tmp_path, "y", batch_size=4)
    monkeypatch.undo()
    monkeypatch.setattr("natgrad.data._parquet.MOST_BYTES", 1000)
    with pytest.warns(InputWarning, match="cut the table smaller"):
        Parquet(tmp_path, "y", batch_size=4)
