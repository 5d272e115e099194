"""Laws of fetching data sets, with a server on this machine in the place of others.

What is served is made of the real tables where NATGRAD_DATA has them, and of tables
of the same shape and range where it has not.
"""

import dataclasses
import http.client
import io
import os
import socket
import time
import urllib.request
import zipfile
from pathlib import Path

import click
import numpy as np
import pytest

from natgrad import datasets
from natgrad._cli import cli
from natgrad.datasets import _files as files
from natgrad.datasets._registry import KNOWN
from natgrad.errors import InputError
from tests.serving import Server, on_openml, on_uci


FOLDER = Path(os.environ.get("NATGRAD_DATA", "nowhere"))


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server that all of the network leads to, and an empty folder for data."""
    found = Server()

    class Rerouted(urllib.request.HTTPSHandler):
        def https_open(self, req):
            here = lambda *_, **options: http.client.HTTPConnection(
                "127.0.0.1", found.port, timeout=options["timeout"]
            )
            return self.do_open(here, req)

    proxies = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(Rerouted, proxies)
    monkeypatch.setattr(urllib.request, "_opener", opener)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between trials
    monkeypatch.setenv("NATGRAD_DATA", str(tmp_path / "data"))
    yield found
    found.close()


@pytest.fixture
def table(monkeypatch):
    """Tables by name: the real one, or one that is taken for it in this test."""

    def found(name: str) -> tuple[list[str], np.ndarray, np.ndarray]:
        known = KNOWN[name]
        if (FOLDER / known.file_name).is_file():
            columns, x, y = files.read(FOLDER / known.file_name)
            return columns[:-1], x, y
        rng = np.random.default_rng(0)
        x = rng.integers(0, 9, (known.rows, known.inputs)) / 4
        y = rng.integers(0, 2, known.rows) * 1.0
        y[:2] = 0, 1
        y = y.astype(int) if known.likelihood == "bernoulli" else 2 + y
        renewed = dataclasses.replace(known, sha256=files.content(x, y))
        monkeypatch.setitem(KNOWN, name, renewed)
        return [f"column {place}" for place in range(known.inputs)], x, y

    return found


def named(inputs: list[str], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(inputs, x.T, strict=True)) | {"target": y}


def assert_fetched(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """It is there, alone, with the same numbers, and is known: nothing is warned of."""
    file = datasets.fetch(name)
    assert file == files.path(name) and os.listdir(file.parent) == [file.name]
    x_found, y_found = datasets.load(name)
    np.testing.assert_array_equal(x_found, x)
    np.testing.assert_array_equal(y_found, y)
    assert y_found.dtype == y.dtype


def refusal(name: str) -> str:
    """What is said of a data set that is not fetched; nothing is left of it."""
    with pytest.raises(InputError) as caught:
        datasets.fetch(name)
    left = files.folder()
    assert not left.exists() or not os.listdir(left)
    said = str(caught.value)
    assert f"save it as {files.path(name)}" in said and "set NATGRAD_DATA" in said
    return said


def test_openml_gives_the_same_table(server, table):
    inputs, x, y = table("yacht")
    on_openml(server, "yacht", named(inputs, x, y))
    assert_fetched("yacht", x, y)
    assert datasets.load("yacht", as_frame=True)[0].columns.tolist() == inputs


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("banana", ["-1", "1"]),
        ("banana", ["1", "2"]),
        ("pima", ["tested_negative", "tested_positive"]),
    ],
)
def test_of_two_labels_the_second_is_one(server, table, name, labels):
    inputs, x, y = table(name)
    columns = named(inputs, x, np.array(labels)[y])
    on_openml(server, name, columns, nominal=("target",))
    assert_fetched(name, x, y)


def test_numbers_that_are_called_categories_are_numbers(server, table):
    inputs, x, y = table("boston")
    columns = named(inputs, x, y)
    nominal = (inputs[3], inputs[8])
    for column in nominal:
        # In the order of the alphabet: a code is not the number it stands for.
        columns[column] = np.array([f"{value:g}" for value in columns[column]])
    on_openml(server, "boston", columns, nominal=nominal)
    assert_fetched("boston", x, y)


@pytest.mark.parametrize("targets", [("target", "cooling_load"), ()])
def test_of_two_targets_the_first_is_meant_and_of_none_the_last(server, table, targets):
    inputs, x, y = table("energy")
    second = {"cooling_load": y[::-1]} if targets else {}
    on_openml(server, "energy", named(inputs, x, y) | second, targets)
    assert_fetched("energy", x, y)


def test_a_table_is_known_in_any_order_of_rows(server, table):
    inputs, x, y = table("yacht")
    order = np.random.default_rng(0).permutation(len(y))
    on_openml(server, "yacht", named(inputs, x[order], y[order]))
    assert_fetched("yacht", x[order], y[order])


def test_power_is_the_file_of_uci(server, table):
    _, x, y = table("power")
    rows = [",".join(f"{value:.15g}" for value in row) for row in np.c_[x, y].tolist()]
    # The published hash is met, byte for byte, if the table is the real one.
    on_uci(server, "power", "\n".join(["AT,V,AP,RH,PE", *rows, ""]))
    assert_fetched("power", x, y)
    assert datasets.load("power", as_frame=True)[0].columns.tolist() == [
        "AT",
        "V",
        "AP",
        "RH",
    ]


def test_bike_is_made_of_some_columns_of_a_file_in_an_archive(server, table):
    inputs, x, y = table("bike")
    names = ["instant", "dteday", *inputs, "casual", "registered", "cnt"]
    rows = [
        f"{row},2011-01-01,{','.join(map(str, values))},1,2,{count:g}"
        for row, (values, count) in enumerate(zip(x.tolist(), y, strict=True))
    ]
    on_uci(server, "bike", "\n".join([",".join(names), *rows]))
    assert_fetched("bike", x, y)
    assert datasets.load("bike", as_frame=True)[0].columns.tolist() == inputs


def test_naval_is_separated_by_blanks_and_its_second_target_left_out(server, table):
    _, x, y = table("naval")
    rows = np.c_[x, y, np.full(len(y), 0.975)].tolist()
    lines = ["   " + "   ".join(f"{value:.7e}" for value in row) for row in rows]
    on_uci(server, "naval", "\n".join([*lines, ""]))
    assert_fetched("naval", x, y)


def test_mnist_is_taken_as_it_is(server, monkeypatch):
    y = np.arange(70_000, dtype=np.uint8) % 10
    x = np.zeros((70_000, 28, 28), np.uint8)
    x[:, 0, 0] = y
    parts = {"x_train": x[:60_000], "x_test": x[60_000:]}
    parts |= {"y_train": y[:60_000], "y_test": y[60_000:]}
    stored = io.BytesIO()
    np.savez_compressed(stored, **parts)
    server.pages["/tensorflow/tf-keras-datasets/mnist.npz"] = stored.getvalue()
    assert "mnist.npz: checksum mismatch" in refusal("mnist")
    sha256 = files.content(x.reshape(70_000, -1), y, is_ordered=True)
    known = dataclasses.replace(KNOWN["mnist"], sha256=sha256)
    monkeypatch.setitem(KNOWN, "mnist", known)
    file = datasets.fetch("mnist")
    assert file.read_bytes() == stored.getvalue()


def test_one_that_is_there_is_left_as_it_is(server, table):
    inputs, x, y = table("yacht")
    file = files.path("yacht")
    file.parent.mkdir()
    file.write_bytes(b"something")
    assert datasets.fetch("yacht") == file and file.read_bytes() == b"something"
    assert datasets.fetch("motorcycle") == files.path("motorcycle")
    assert not server.asked


@pytest.mark.parametrize("source", ["openml", "uci"])
def test_a_download_that_breaks_off_leaves_nothing(server, table, source):
    name = "naval" if source == "uci" else "yacht"
    inputs, x, y = table(name)
    columns = named(inputs, x, y)
    if source == "openml":
        on_openml(server, name, columns)
    else:
        on_uci(server, name, "\n".join(["1 2 3"] * 1000))
    server.cut = {path for path in server.pages if "json" not in path}
    said = refusal(name)
    expected = "md5 checksum" if source == "openml" else "IncompleteRead"
    assert expected in said or "IncompleteRead" in said, said
    assert f"get it from {KNOWN[name].source}, " in said


def test_a_table_without_the_marks_is_refused(server, table):
    inputs, x, y = table("yacht")
    on_openml(server, "yacht", named(inputs, x, np.log(y)))
    said = refusal("yacht")
    assert "https://www.openml.org/d/42370: checksum mismatch" in said
    on_openml(server, "yacht", named(inputs, x[1:], y[1:]))
    assert "has 307 rows of 6 inputs; yacht has 308 of 6" in refusal("yacht")
    columns = named(inputs, x, y)
    names = np.array(["Delft", "hull"])[np.arange(308) % 2]
    on_openml(server, "yacht", columns | {inputs[0]: names}, nominal=(inputs[0],))
    assert "could not convert string to float: 'Delft'" in refusal("yacht")
    server.pages["/data/v1/download/42370"] = b"no ARFF"
    assert "d/42370 has unexpected contents" in refusal("yacht")


def test_other_numbers_of_the_same_shape_and_range_are_refused(server, table):
    inputs, x, y = table("yacht")
    on_openml(server, "yacht", named(inputs, x[::-1], y))
    assert "d/42370: checksum mismatch" in refusal("yacht")


def test_an_archive_without_the_file_is_refused(server):
    address = on_uci(server, "bike", "")
    assert f"{address} has unexpected contents" in refusal("bike")
    path = address.removeprefix("https://archive.ics.uci.edu")
    server.pages[path] = b"<html>We have moved.</html>"
    assert "File is not a zip file" in refusal("bike")
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    server.pages[path] = empty.getvalue()
    assert "hour.csv" in refusal("bike")


def test_without_a_server_it_is_said_what_to_do(server):
    assert "could not be fetched: Not Found" in refusal("power")
    assert "d/42370 could not be fetched: Not Found" in refusal("yacht")
    server.close()
    said = refusal("yacht")
    assert "d/42370 could not be fetched" in said and "refused" in said
    assert f"get it from {KNOWN['yacht'].source}, " in said


@pytest.mark.parametrize("name", ["power", "yacht"])
def test_a_server_that_says_nothing_is_left(server, monkeypatch, name):
    monkeypatch.setattr(files, "TIMEOUT", 0.1)
    server.silent = {"/static/public/294/data.csv", "/api/v1/json/data/42370"}
    assert "could not be fetched: timed out" in refusal(name)
    assert socket.getdefaulttimeout() is None


def test_what_cannot_be_fetched_is_asked_of_no_one(server):
    said = refusal("flights_nyc2013")
    assert "--fetch" not in said and "examples/scale/flights.py" in said
    assert not server.asked
    with pytest.raises(InputError, match="mean 'energy'"):
        datasets.fetch("enrgy")
    with pytest.raises(InputError, match="run natgrad datasets energy --fetch, or get"):
        datasets.load("energy")


def test_an_interruption_leaves_nothing(server, table, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    on_openml(server, "yacht", named(*table("yacht")))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(files.np, "lexsort", interrupted)
        datasets.fetch("yacht")
    assert os.listdir(files.folder()) == []
    datasets.fetch("yacht")


def test_the_command_fetches(server, table, capsys):
    on_openml(server, "yacht", named(*table("yacht")))
    for arguments in ("yacht", "yacht --fetch", "yacht --fetch"):
        cli.main(["datasets", *arguments.split()], standalone_mode=False)
    with pytest.raises(click.UsageError, match="NAME is missing"):
        cli.main(["datasets", "--fetch"], standalone_mode=False)
    out, err = capsys.readouterr()
    first, second = err.split("yacht.parquet fetched")
    assert "run natgrad datasets yacht --fetch" in first
    assert "yacht.parquet was there already" in second
    assert out.count("(not there)") == 1 and out.count("(here)") == 2
