"""Laws of fetching data sets, with a server on this machine in the place of others.

What is served is made of the real tables where NATGRAD_DATA has them, and of tables
of the same shape and range where it has not.
"""

import dataclasses
import hashlib
import http.client
import io
import os
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest

from natgrad import datasets
from natgrad.data import _tables as tables
from natgrad.datasets import _files as files, _splits as splits
from natgrad.datasets._registry import KNOWN
from natgrad.errors import InputError, InputWarning
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
    monkeypatch.delenv("NATGRAD_MIRROR", raising=False)
    yield found
    found.close()


@pytest.fixture
def table(monkeypatch):
    """Tables by name: the real one, or one that is taken for it in this test."""

    def found(name: str) -> tuple[list[str], np.ndarray, np.ndarray]:
        known = KNOWN[name]
        if (FOLDER / known.file_name).is_file():
            return files.read(FOLDER / known.file_name)
        rng = np.random.default_rng(0)
        x = rng.integers(0, 9, (known.rows, known.inputs)) / 4
        y = rng.integers(0, 2, known.rows) * 1.0
        y[:2] = 0, 1
        y = known.low + y * (known.high - known.low)
        download = known.download
        if download is not None:
            download = dataclasses.replace(download, sha256=None)
        renewed = dataclasses.replace(
            known, sha256=None, content=files.content(x, y), download=download
        )
        monkeypatch.setitem(KNOWN, name, renewed)
        y = y.astype(int) if known.likelihood == "bernoulli" else y
        return [f"column {place}" for place in range(known.inputs)], x, y

    return found


def mirrored(server: Server, name: str, columns: dict[str, np.ndarray]) -> str:
    """Has a server be a mirror of one table, and says its hash."""
    path = Path(os.environ["NATGRAD_DATA"]).parent / "made.parquet"
    tables.write(path, columns)
    server.pages[f"/sets/{name}.parquet"] = path.read_bytes()
    return files.digest(path)


def named(inputs: list[str], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(inputs, x.T, strict=True)) | {"target": y}


def assert_fetched(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """It is there, alone, with the same numbers, and is known: nothing is warned of."""
    file = datasets.fetch(name)
    assert file == datasets.path(name) and os.listdir(file.parent) == [file.name]
    x_found, y_found = datasets.load(name)
    np.testing.assert_array_equal(x_found, x)
    np.testing.assert_array_equal(y_found, y)
    assert y_found.dtype == y.dtype


def refusal(name: str) -> str:
    """What is said of a data set that is not fetched; nothing is left of it."""
    with pytest.raises(InputError) as caught:
        datasets.fetch(name)
    left = datasets.folder()
    assert not left.exists() or not os.listdir(left)
    said = str(caught.value)
    assert f"save it as {datasets.path(name)}" in said and "set NATGRAD_DATA" in said
    return said


@pytest.mark.parametrize("kind", ["http", "file"])
def test_a_mirror_gives_the_same_bytes(server, table, monkeypatch, tmp_path, kind):
    columns = named(*table("yacht"))
    sha256 = mirrored(server, "yacht", columns)
    monkeypatch.setitem(
        KNOWN, "yacht", dataclasses.replace(KNOWN["yacht"], sha256=sha256)
    )
    mirror = f"{server.address}/sets/"
    if kind == "file":
        mirror = (tmp_path / "sets").as_uri()
        (tmp_path / "sets").mkdir()
        (tmp_path / "sets/yacht.parquet").write_bytes(
            server.pages["/sets/yacht.parquet"]
        )
    monkeypatch.setenv("NATGRAD_MIRROR", mirror)
    *inputs, target = columns.values()
    assert_fetched("yacht", np.stack(inputs, 1), target)
    assert files.digest(datasets.path("yacht")) == sha256


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


def test_year_is_taken_in_the_order_of_its_rows(server, table, monkeypatch):
    # The way of the whole set, on the fragment: the target is first, and there is an
    # official split.
    _, x, y = table("year_head")
    head, year = KNOWN["year_head"], KNOWN["year"]
    monkeypatch.setitem(
        KNOWN,
        "year",
        dataclasses.replace(
            year,
            **{"rows": head.rows, "low": head.low, "high": head.high},
            content=files.content(x, y, is_ordered=True),
        ),
    )
    monkeypatch.setitem(splits.OFFICIAL, "year", 1000)
    rows = np.c_[y, x].tolist()
    lines = [",".join(f"{value:.15g}" for value in row) for row in rows]
    address = on_uci(server, "year", "\n".join([*lines, ""]))
    assert_fetched("year", x, y)
    found = datasets.split("year", x, y, number=3)
    np.testing.assert_array_equal(found.x, x[:1000])
    np.testing.assert_array_equal(found.y_test, y[1000:])
    datasets.path("year").unlink()
    on_uci(server, "year", "\n".join(lines[::-1]))
    assert f"{address}: checksum mismatch" in refusal("year")


def test_mnist_is_taken_as_it_is(server, monkeypatch):
    y = np.arange(70_000, dtype=np.uint8) % 10
    x = np.zeros((70_000, 28, 28), np.uint8)
    x[:, 0, 0] = y
    parts = {"x_train": x[:60_000], "x_test": x[60_000:]}
    parts |= {"y_train": y[:60_000], "y_test": y[60_000:]}
    stored = io.BytesIO()
    np.savez_compressed(stored, **parts)
    server.pages["/tensorflow/tf-keras-datasets/mnist.npz"] = stored.getvalue()
    assert ", not 731c5ac6" in refusal("mnist")
    known, sha256 = KNOWN["mnist"], hashlib.sha256(stored.getvalue()).hexdigest()
    download = dataclasses.replace(known.download, sha256=sha256)
    monkeypatch.setitem(KNOWN, "mnist", dataclasses.replace(known, download=download))
    with pytest.warns(InputWarning, match="mnist.npz is unverified"):
        file = datasets.fetch("mnist", unverified=True)
    assert file.read_bytes() == stored.getvalue()


def test_one_that_is_there_is_left_as_it_is(server, table):
    inputs, x, y = table("yacht")
    file = datasets.path("yacht")
    file.parent.mkdir()
    file.write_bytes(b"something")
    assert datasets.fetch("yacht") == file and file.read_bytes() == b"something"
    assert datasets.fetch("motorcycle") == datasets.path("motorcycle")
    assert not server.asked


@pytest.mark.parametrize("source", ["mirror", "openml", "uci"])
def test_a_download_that_breaks_off_leaves_nothing(server, table, monkeypatch, source):
    name = "naval" if source == "uci" else "yacht"
    inputs, x, y = table(name)
    columns = named(inputs, x, y)
    if source == "mirror":
        mirrored(server, name, columns)
        monkeypatch.setenv("NATGRAD_MIRROR", f"{server.address}/sets")
    elif source == "openml":
        on_openml(server, name, columns)
    else:
        on_uci(server, name, "\n".join(["1 2 3"] * 1000))
    server.cut = {path for path in server.pages if "json" not in path}
    said = refusal(name)
    expected = "md5 checksum" if source == "openml" else "closed after"
    assert expected in said or "IncompleteRead" in said, said
    assert f"{KNOWN[name].sources[0]} or " in said


def test_a_wrong_checksum_is_refused(server, table, monkeypatch):
    columns = named(*table("yacht"))
    found = mirrored(server, "yacht", columns)
    monkeypatch.setitem(
        KNOWN, "yacht", dataclasses.replace(KNOWN["yacht"], sha256="0" * 64)
    )
    monkeypatch.setenv("NATGRAD_MIRROR", f"{server.address}/sets")
    said = refusal("yacht")
    assert f"yacht.parquet: checksum mismatch: SHA-256 {found}, not {'0' * 64}" in said


def test_a_table_without_the_marks_is_refused(server, table):
    inputs, x, y = table("yacht")
    on_openml(server, "yacht", named(inputs, x, np.log(y)))
    said = refusal("yacht")
    assert "the last column of https://www.openml.org/d/42370 is from -4.6" in said
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
    with pytest.warns(InputWarning, match="d/42370 is unverified"):
        file = datasets.fetch("yacht", unverified=True)
    assert file.is_file()
    with pytest.raises(InputError, match="yacht.parquet: checksum mismatch"):
        datasets.load("yacht")
    with pytest.warns(InputWarning, match="yacht.parquet is unverified"):
        datasets.load("yacht", unverified=True)


def test_what_has_no_checksum_is_fetched_only_on_request(server):
    assert [name for name in KNOWN if not KNOWN[name].content] == ["year"]
    assert "natgrad knows no checksum of 'year'" in refusal("year")
    assert not server.asked


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


def test_without_a_server_it_is_said_what_to_do(server, monkeypatch):
    assert "could not be fetched: Not Found" in refusal("power")
    assert "d/42370 could not be fetched: Not Found" in refusal("yacht")
    server.close()
    said = refusal("yacht")
    assert "d/42370 could not be fetched" in said and "refused" in said
    for part in KNOWN["yacht"].sources:
        assert part in said
    monkeypatch.setenv("NATGRAD_MIRROR", f"{server.address}/sets")
    said = refusal("flights_nyc2013")
    assert f"{server.address}/sets/flights_nyc2013.parquet could not be" in said


@pytest.mark.parametrize("name", ["power", "yacht"])
def test_a_server_that_says_nothing_is_left(server, monkeypatch, name):
    monkeypatch.setattr(sys.modules["natgrad.datasets._fetch"], "TIMEOUT", 0.1)
    server.silent = {"/static/public/294/data.csv", "/api/v1/json/data/42370"}
    assert "could not be fetched: timed out" in refusal(name)
    assert socket.getdefaulttimeout() is None


def test_what_cannot_be_fetched_is_asked_of_no_one(server):
    for name in ("flights_nyc2013", "year_head"):
        assert "--fetch" not in refusal(name)
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
    assert os.listdir(datasets.folder()) == []
    datasets.fetch("yacht")


def test_the_command_fetches(tmp_path, table):
    (tmp_path / "sets").mkdir()
    tables.write(tmp_path / "sets/yacht.parquet", named(*table("yacht")))
    variables = os.environ | {
        "NATGRAD_DATA": str(tmp_path / "data"),
        "NATGRAD_MIRROR": (tmp_path / "sets").as_uri(),
    }
    code = """
import dataclasses
from natgrad._cli import cli, main
from natgrad.datasets._registry import KNOWN

KNOWN["yacht"] = dataclasses.replace(KNOWN["yacht"], sha256=None, content=None)
for arguments in ("yacht", "yacht --fetch --unverified", "yacht --fetch"):
    cli.main(["datasets", *arguments.split()], standalone_mode=False)
main(["datasets", "--fetch"])
"""
    run = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert run.returncode == 2 and "NAME is missing" in run.stderr, run.stderr
    first, second = run.stderr.split("yacht.parquet fetched")
    assert "run natgrad datasets yacht --fetch" in first
    assert "warning: file://" in first and "is unverified" in first
    assert "yacht.parquet was there already" in second
    assert run.stdout.count("(not there)") == 1 and run.stdout.count("(here)") == 2
