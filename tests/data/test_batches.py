"""Laws of where batches come from."""

import warnings

import jax
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from natgrad.data import Arrays, Batch, IterableBatches
from natgrad.data._batches import Batches, as_batch, as_batches
from natgrad.errors import InputError, InputWarning


N, D = 23, 2
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, D)), np.arange(N)


@pytest.mark.parametrize("rows", [1, 5, 7, 23, 100])
def test_every_pass_holds_every_row_once(rows):
    source = Arrays(Batch(X, Y), rows, seed=3)
    steps = 3 * N
    seen = np.concatenate(list(source.take(0, steps).y))
    size = min(rows, N)
    assert source.fraction == size / N and source.num_data == N
    passes = seen[: len(seen) // N * N].reshape(-1, N)
    np.testing.assert_array_equal(np.sort(passes), np.tile(Y, (len(passes), 1)))
    if rows < N:
        assert not (passes[0] == passes[1]).all()


def test_batches_without_columns_share_none():
    Batch(X, Y).columns["trials"] = Y
    assert Batch(X, Y).columns == {}


def test_a_dictionary_is_no_column():
    for data in ((X, {"y": Y, "trials": Y}), Batch(X, Y, {"trials": Y})):
        with pytest.raises(InputError, match=r"trials .*Batch\(x, y, col"):
            as_batches(data)


def test_the_batch_of_a_step_depends_on_seed_and_step_alone():
    whole = Arrays(Batch(X, Y), 5, seed=3).take(0, 40)
    for start, number in [(0, 1), (4, 7), (39, 1), (13, 20)]:
        part = Arrays(Batch(X, Y), 5, seed=3).take(start, number)
        for ours, all_of_it in zip(*map(jax.tree.leaves, (part, whole)), strict=True):
            np.testing.assert_array_equal(ours, all_of_it[start : start + number])
    other = Arrays(Batch(X, Y), 5, seed=4).take(0, 40)
    assert not (other.y == whole.y).all()


def frame() -> dict:
    return {"a": X[:, 0], "weight": np.ones(N), "b": X[:, 1], "target": Y}


@pytest.mark.parametrize(
    "make",
    [pandas.DataFrame, polars.DataFrame, pyarrow.table],
    ids=["pandas", "polars", "Arrow"],
)
def test_frames_of_all_kinds_are_the_same_table(make):
    inputs, targets = make({"a": X[:, 0], "b": X[:, 1]}), make({"target": Y})
    batch = as_batch((inputs, targets, make({"weight": np.ones(N)})))
    np.testing.assert_array_equal(batch.x, X)
    np.testing.assert_array_equal(batch.y, Y)
    np.testing.assert_array_equal(batch.weight, np.ones(N))


def relation(columns):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.connect().from_arrow(pyarrow.table(columns))


STREAMS = {
    "reader": lambda columns: pyarrow.table(columns).to_reader(max_chunksize=5),
    "batch": pyarrow.RecordBatch.from_pydict,
    "DuckDB": relation,
    "polars": lambda columns: Stream(polars.DataFrame(columns)),
}


class Stream:
    """A table that knows but how to give itself as a stream of Arrow."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, schema=None):
        return self.frame.__arrow_c_stream__(schema)


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_a_frame_without_its_target_named_is_refused(make):
    with pytest.raises(InputError, match=r"give a pair \(x, y\), such as \(frame"):
        as_batches(make(frame()))


def test_a_short_batch_is_filled_up_and_counts_as_much_as_its_rows():
    short = [Batch(X[:10], Y[:10]), Batch(X[10:20], Y[10:20]), Batch(X[20:], Y[20:])]
    source = as_batches(short)
    assert isinstance(source, IterableBatches) and isinstance(source, Batches)
    stacked = source.take(0, 7)  # begun again twice
    assert stacked.x.shape == (7, 10, D)
    np.testing.assert_array_equal(stacked.weight.sum(1), [10, 10, 3, 10, 10, 3, 10])
    np.testing.assert_array_equal(stacked.y[2][:3], Y[20:])
    np.testing.assert_array_equal(stacked.x[5], stacked.x[2])


def test_an_iterable_can_be_taken_up_at_any_step_and_may_end():
    batches = [(X[i : i + 2], Y[i : i + 2]) for i in range(0, 20, 2)]
    ahead = IterableBatches(batches).take(13, 2)
    np.testing.assert_array_equal(ahead.y, [Y[6:8], Y[8:10]])
    source = IterableBatches(batches)
    np.testing.assert_array_equal(source.take(4, 1).y, source.take(4, 1).y)
    once = IterableBatches(iter(batches))
    assert len(once.take(0, 8).y) == 8
    assert len(once.take(8, 8).y) == 2
    assert once.take(10, 8) is None


def test_what_cannot_be_batched_is_refused():
    with pytest.raises(InputError, match="empty"):
        IterableBatches([])
    with pytest.raises(InputError, match=r"\[22, 23\] rows"):
        Arrays(Batch(X, Y[1:]))
    with pytest.raises(InputError, match="at least one"):
        Arrays(Batch(X[:0], Y[:0]))
    with pytest.raises(InputError, match="none should have more"):
        IterableBatches([Batch(X[:2], Y[:2]), Batch(X[:3], Y[:3])]).take(0, 2)
    with pytest.warns(InputWarning, match="left out"):
        taken = IterableBatches([{"x": X[:3]}, {"x": X[:2]}, {"x": X[:3]}]).take(0, 3)
    assert taken["x"].shape == (3, 3, D)


def test_batches_that_are_left_out_are_not_counted():
    batches = [{"y": Y[i : i + 5]} for i in range(0, N, 5)]  # the last is short
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        whole = IterableBatches(batches).take(0, 9)["y"][:, 0]
        source = IterableBatches(batches)
        parts = [source.take(*part)["y"][:, 0] for part in [(0, 1), (1, 4), (5, 4)]]
    np.testing.assert_array_equal(whole, [0, 5, 10, 15, 0, 5, 10, 15, 0])
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_changed_table_has_another_fingerprint():
    one = Arrays(Batch(X, Y)).fingerprint()
    assert one == Arrays(Batch(X.copy(), Y)).fingerprint()
    changed = X.copy()
    changed[N // 2, 0] += 1e-9
    assert one != Arrays(Batch(changed, Y)).fingerprint()
    assert one != Arrays(Batch(X.astype("f4"), Y)).fingerprint()


def test_a_tree_of_jax_arrays_is_a_table_too():
    taken = as_batches({"u": jax.numpy.asarray(X)}, batch_size=4).take(2, 3)
    assert taken["u"].shape == (3, 4, D)
