"""The experiments of the paper as a user has them: from the command line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import paper
from paper.store import Store


ROOT = Path(__file__).parents[2]


@pytest.fixture
def command(tmp_path):
    """The command in a process of its own, from a clone."""

    def begin(arguments):
        out = str(tmp_path / "results")
        return subprocess.Popen(
            [sys.executable, "-m", "paper", *arguments.split(), "--out", out],
            cwd=ROOT,
            env=os.environ | {"COLUMNS": "80"},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(arguments, code=0):
        with begin(arguments) as process:
            said = process.communicate()[1]
        assert process.returncode == code, said[-3000:]
        return said

    run.begin = begin
    return run


def runs_in(path):
    table = Store(path).table
    return table[["run", "took", "versions"]].drop_duplicates().reset_index(drop=True)


@pytest.mark.nightly
def test_a_run_that_is_killed_or_interrupted_goes_on(command, tmp_path):
    file, found = tmp_path / "results" / "fig1-quick.parquet", 0
    for number, ending in enumerate((signal.SIGKILL, signal.SIGINT), 1):
        with command.begin("fig1 --quick") as process:
            while len(runs_in(file)) <= found if file.is_file() else True:
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.01)
            process.send_signal(ending)
            said = process.communicate()[1]
        found = len(runs_in(file))  # one more may have ended before the signal came
        assert number <= found < 4, said
    assert process.returncode == 130 and said.splitlines()[-1] == "interrupted"
    assert "results; rerun to continue" in said
    before = runs_in(file)
    said = command("fig1 --quick")
    assert f"{found}/4" in said and "1/4" not in said
    assert said.endswith("results has fig1-quick.parquet, fig1-quick.png\n")
    after = runs_in(file)
    assert len(after) == 4 and after[:found].equals(before)
    assert "results has claims-quick.md" in command("claims --quick")
    assert "confirmed" in (tmp_path / "results" / "claims-quick.md").read_text()
    assert "Invalid value for 'NAME'" in command("fig8", code=2)


# What the quick forms of these can decide on is decided below.
DECIDING = ("fig1", "fig2", "text")


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [name for name in paper.FIGURES if name not in DECIDING]
)
def test_the_quick_form_of_an_experiment_runs_and_is_drawn(name, command, tmp_path):
    check_quick(name, command(f"{name} --quick"), tmp_path / "results")


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.nightly
def test_claims_that_quick_forms_decide_on_are_confirmed(command, tmp_path):
    folder = tmp_path / "results"
    for name in DECIDING:
        check_quick(name, command(f"{name} --quick"), folder)
    command("claims --quick")
    rows = (folder / "claims-quick.md").read_text().splitlines()
    told = [row for row in rows if row.startswith("| ") and row[2].isdigit()]
    assert len(told) >= 8
    assert all(row.endswith("| confirmed |") for row in told), told


def check_quick(name, said, folder):
    """All runs are there, and the pictures that were said to be."""
    drawn = [path.name for path in folder.glob(f"{name}*.png")]
    pictures = {"fig2": 7, "text": 0, "readings": 0}.get(name, 1)
    assert len(drawn) == pictures
    assert all(each.endswith("-quick.png") and each in said for each in drawn)
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    store = paper.store_of(name, folder, is_quick=True)
    configs = list(paper.module(name).configs(True, store))
    assert configs and not store.missing(configs)
    value = {"text": "value", "fig1": "path_bound"}.get(name, "bound")
    assert np.isfinite(store.table[value]).all()
