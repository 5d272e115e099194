"""Laws of the splits and of the scaling that the experiments share."""

import os

import numpy as np
import pytest

from natgrad import datasets
from paper import tables


def rows_of(part: np.ndarray) -> set[int]:
    return set(part[:, 0].astype(int).tolist())


def test_a_table_that_natgrad_does_not_know_is_read_by_name(tmp_path, monkeypatch):
    import pyarrow
    from pyarrow import parquet

    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path))
    assert "other.parquet is missing" in tables.absent("other")
    assert "natgrad datasets yacht --fetch" in tables.absent("yacht")
    columns = {"a": [1.0, 2.0], "b": [3, 4], "level": [5, 6]}
    parquet.write_table(pyarrow.table(columns), tables.path("other"))
    x, y = tables.load("other")
    np.testing.assert_array_equal(x, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(y, [5, 6])


def test_a_split_is_of_all_rows_and_the_same_each_time():
    x = np.stack([np.arange(1007.0), np.ones(1007)], axis=1)
    y = 2 * x[:, 0]
    tests = []
    for number in range(5):
        found = tables.split("energy", x, y, number)
        again = tables.split("energy", x, y, number)
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
    x = np.arange(rows)[:, None]
    for number in (0, 1):
        found = tables.split(name, x, x[:, 0], number)
        np.testing.assert_array_equal(found.x, x[:train])
        np.testing.assert_array_equal(found.y_test, x[train:, 0])
    with pytest.raises(ValueError, match=f"there are {train:,} rows; the first"):
        tables.split(name, x[:train], x[:train, 0])


def assert_scaled(part: np.ndarray, is_constant: np.ndarray) -> None:
    np.testing.assert_allclose(part.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(part.std(0), np.where(is_constant, 0.0, 1.0), atol=1e-9)
    assert (part[:, is_constant] == 0.0).all()


def naval() -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Naval, or a table like it: inputs, targets, and which columns are constant."""
    if "NATGRAD_DATA" in os.environ and tables.path("naval").is_file():
        return *datasets.load("naval"), [8, 11]
    x = np.random.default_rng(0).normal(size=(11934, 16)) * np.logspace(-9, 9, 16)
    x[:, 8], x[:, 11] = 288.0, 0.998
    return x, np.linspace(0.95, 1.0, 11934), [8, 11]


def test_scaling_is_by_the_training_rows_and_spares_what_is_constant():
    x, y, constant = naval()
    rows = tables.split("naval", x, y)
    found = tables.with_scaled_targets(tables.with_scaled_inputs(rows))
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
    alone = tables.with_scaled_inputs(rows._replace(x=rows.x[:1]))
    assert (alone.x == 0.0).all()
    np.testing.assert_array_equal(alone.x_test, rows.x_test - rows.x[:1])


def test_whole_numbers_and_single_precision_are_scaled_in_double():
    pixels = np.arange(200, dtype=np.uint8)[:, None]
    rows = tables.Split(pixels, pixels[:, 0], pixels, pixels[:, 0])
    assert_scaled(tables.with_scaled_inputs(rows).x, np.array([False]))
    far = np.float32(1e4) + pixels.astype(np.float32)
    rows = rows._replace(x=np.tile(far, (1000, 1)))
    assert_scaled(tables.with_scaled_inputs(rows).x, np.array([False]))
