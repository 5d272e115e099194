"""`natgrad update`: one pass over new rows, killed and continued."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from natgrad._cli import cli, updating


RNG = np.random.default_rng(0)
ROWS = 400
A = np.sort(RNG.uniform(-3, 3, ROWS))
B = RNG.uniform(-1, 1, ROWS)
Y = 5 + np.sin(2 * A) + B + 0.1 * RNG.standard_normal(ROWS)


def natgrad(*words):
    result = CliRunner().invoke(cli, [*map(str, words)])
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of the first rows, and the rest in files of several row groups."""
    place = tmp_path_factory.mktemp("update")
    table = arrow.table({"a": A, "b": B, "y": Y})
    parquet.write_table(table[:100], place / "first.parquet")
    (place / "rest").mkdir()
    for name, part in {"0": table[100:270], "1": table[270:]}.items():
        parquet.write_table(part, place / f"rest/{name}.parquet", row_group_size=64)
    words = ["train", place / "first.parquet", "--target", "y", "--out", place / "m"]
    words += ["--likelihood", "gaussian", "--num-inducing", 16, "--no-progress"]
    assert natgrad(*words).exit_code == 0
    return place


def words_for(folder, out):
    options = ["--out", out, "--rows-per-piece", 60]
    return ["update", folder / "m", folder / "rest", *options]


@pytest.mark.filterwarnings("ignore:16 inducing inputs cannot")
def test_new_rows_are_learned_in_one_pass(folder):
    result = natgrad(*words_for(folder, folder / "new"), "--json")
    assert json.loads(result.stdout)["rows"] == ROWS
    score = natgrad("evaluate", folder / "new", folder / "rest/1.parquet", "--json")
    old = natgrad("evaluate", folder / "m", folder / "rest/1.parquet", "--json")
    rmse = [json.loads(each.stdout)["rmse"] for each in (score, old)]
    assert rmse[0] < 0.3 < rmse[1]
    assert not (folder / "new" / updating.STATE).exists()
    again = natgrad(*words_for(folder, folder / "new"))
    assert isinstance(again.exception, Exception)
    assert "has a model already" in str(again.exception)


SLOW = """
import sys, time
from natgrad._cli import main, updating
learn = updating._learn
def slowly(*arguments):
    time.sleep(0.3)
    return learn(*arguments)
updating._learn, updating.SECONDS = slowly, 0.0
main(sys.argv[1:])
"""


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:16 inducing inputs cannot")
def test_a_killed_update_continues_to_the_same_bits(folder, monkeypatch):
    monkeypatch.setattr(updating, "SECONDS", 0.0)
    out = folder / "killed"
    words = [*map(str, words_for(folder, out))]
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (out / updating.STATE).exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (out / "model.natgrad").exists()
    other = natgrad(*words[:-1], 61)
    assert "in other pieces" in str(other.exception)
    continued = natgrad(*words)
    assert "continuing after" in continued.output
    whole = folder / "whole"
    natgrad(*words_for(folder, whole))
    assert (out / "model.natgrad").read_bytes() == (
        whole / "model.natgrad"
    ).read_bytes()
