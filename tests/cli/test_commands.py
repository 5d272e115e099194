"""What each command gives, and what it says when something is wrong."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as arrow
import pyarrow.csv
import pyarrow.parquet
import pytest


# The processes that the fixtures run are run once, by one worker.


def test_help_is_there_without_any_heavy_package():
    code = """
import sys
from natgrad._cli import main

for arguments in (["--help"], ["train", "--help"], ["--version"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code == 0
heavy = {"jax", "sklearn", "pyarrow", "pandas", "matplotlib", "scipy", "numpy"}
print("heavy:", *heavy & set(sys.modules))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "natgrad train houses.csv --target price" in found.stdout
    assert found.stdout.endswith("heavy:\n"), found.stdout[-100:]


def test_training_leaves_a_model_and_how_it_was_made(folder, trained):
    assert trained.json["likelihood"] == "gaussian"
    assert 0 < trained.json["steps"] <= 100 and trained.json["rows"] == 150
    assert "guessed --likelihood gaussian: the target is real" in trained.err
    names = {path.name for path in (folder / "model").iterdir()}
    assert names == {"model.natgrad", "run.toml", "history.jsonl"}
    lines = (folder / "model" / "history.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == trained.json["steps"]
    written = (folder / "model" / "run.toml").read_text()
    assert 'inputs = ["size", "town", "new"]' in written
    assert 'likelihood = "gaussian"' in written


def test_predictions_are_a_table_of_the_same_rows(folder, used, data):
    said = "first.parquet has 150 rows of mean, std, q0.05, q0.5, q0.95\n"
    assert used["predict"].out == said
    table = pyarrow.parquet.read_table(folder / "first.parquet").to_pydict()
    assert (
        np.diff([table[f"q{p}"] for p in ("0.05", "0.5", "0.95")], axis=0) > 0
    ).all()
    error = np.array(table["mean"]) - data["price"].to_numpy()
    assert np.median(np.abs(error)) < 30 and min(table["std"]) > 0
    kept = pyarrow.csv.read_csv(folder / "kept.csv")
    assert kept.column_names == [*data.column_names, *table]
    assert kept["town"].to_pylist() == data["town"].to_pylist()
    assert used["keep"].json["columns"] == kept.column_names
    assert used["stream"].out.startswith('"mean","std","q0.1","q0.9"\n')
    assert len(used["stream"].out.splitlines()) == 151


def test_a_model_is_evaluated_described_and_drawn(folder, used):
    found = used["evaluate --json"].json
    assert found["rows"] == 150 and found["r2"] > 0.7 and found["coverage_90"] > 0.8
    assert re.search(r"^r2 +0\.\d+$", used["evaluate"].out, re.MULTILINE)
    described = used["info --json"].json
    assert described["inputs"][1] == {
        "name": "town",
        "kind": "category",
        "encoding": "3 categories, a column each: Bath, Ely, Rye",
        "values": ["Bath", "Ely", "Rye"],
    }
    assert described["num_inducing"] == 20 and not described["is_resumable"]
    assert {"size", "town=Rye"} <= described["lengthscales"].keys()
    assert re.search("town +3 categories, a column each: Bath, Ely", used["info"].out)
    drawn = {path.name for path in (folder / "pictures").iterdir()}
    assert {"predicted.png", "calibration.png", "lengthscales.png"} <= drawn
    for picture in [*(folder / "pictures").iterdir(), folder / "pictures.png"]:
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "page.html").read_text("utf-8").lower()
    named = ("predict", "plot folder", "plot file", "report", "info", "stream")
    assert [used[name].code for name in named] == [0] * len(named)


def test_the_machine_is_examined(used):
    found = used["doctor --json"].json
    assert found["self_test"]["passed"] and found["self_test"]["relative_error"] < 1e-10
    assert found["self_test"]["seconds"] < 5 or os.getloadavg()[0] > 2
    assert found["extras"]["parquet"] == arrow.__version__
    assert "self-test passed" in used["doctor"].out
    assert used["datasets"].json["motorcycle"]["rows"] == 133
    assert "https://www.openml.org/d/44960" in used["dataset"].out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown category", "column 'town' has the value 'York', which was not among"),
        ("null", "column 'size' has nulls, and the training rows had none"),
    ],
)
def test_what_was_not_in_the_training_rows_is_warned_of(used, name, message):
    assert used[name].code == 0
    assert f"warning: {message}" in used[name].err


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("missing column", 1, "sizeless.csv: the table has no column 'size'; it has"),
        ("corrupt", 1, "cut.parquet cannot be read"),
        ("no file", 1, "nowhere.csv does not exist"),
        ("no model", 1, "nowhere does not exist; it should be what train --out made"),
        ("not a model", 1, "houses.csv"),
        ("no such place", 1, "could not be written: No such file or directory"),
        ("no such kind", 1, "--out is p.xlsx; it should end in .parquet or .csv"),
        ("onto the data", 1, "houses.csv is the input file; write to another"),
        ("no page", 1, "--out is houses.csv; it should end in .html"),
        ("no UTF-8", 1, "latin.csv is not UTF-8; save it as UTF-8"),
        ("no target", 1, "no column 'prize'; did you mean 'price'? It has price, size"),
        ("no inputs", 1, "houses.csv: the table has no column 'tone'"),
        ("strings", 1, "the target 'sold' holds strings"),
        ("order", 1, "whose order is not known; replace them by numbers"),
        ("no proportion", 1, "between 0 and 1"),
        ("kernel", 1, "kernel is 'matern'; it should be one of auto, matern12"),
        ("wrong key", 1, "wrong.toml: a key of [model] is 'likelyhood'"),
        ("again", 1, "model has a model already; --force replaces it"),
        ("resume", 1, "model has no checkpoint to continue from: its run has ended"),
        ("out is a file", 2, "'houses.csv' is a file"),
        ("quantiles", 2, "--quantiles is '5,95'"),
        ("usage", 2, "--target is missing"),
        ("no such command", 2, "Did you mean 'train'?"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(used, name, code, message):
    said = used[name]
    last = said.err.splitlines()[-1]
    assert said.code == code and message in last, said.err
    assert last.lower().startswith("error: ") and "Traceback" not in said.err
    assert not said.out


def test_where_an_error_came_from_is_shown_when_asked(used):
    assert used["debug"].code == 1
    assert used["debug"].err.startswith("Traceback")


def test_the_version_is_that_of_the_package(natgrad):
    assert re.fullmatch(r"natgrad \d+\.\d+\.\d+\S*\n", natgrad("--version").out)


def test_the_package_runs_as_the_command():
    run = [sys.executable, "-m", "natgrad", "--version"]
    assert subprocess.check_output(run, text=True).startswith("natgrad ")
