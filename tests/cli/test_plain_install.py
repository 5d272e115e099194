"""A CSV file needs neither pyarrow nor pandas, and gives the same model without."""

import json
import subprocess
import sys

import numpy as np
import pytest


WITHOUT = """
import sys
from importlib import util

absent = set(sys.argv[1].split(","))
find_spec = util.find_spec


class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent)
util.find_spec = lambda name, *rest: None if name in absent else find_spec(name, *rest)

from natgrad._cli import main

for arguments in sys.argv[2:]:
    try:
        main(arguments.split())
    except SystemExit as end:
        print("code", end.code, file=sys.stderr)
"""
COMMANDS = (
    "train bikes.csv --target hires --num-inducing 8 --steps 20 --seed 0 --json",
    "predict model bikes.csv --out predicted.csv --keep all",
    "evaluate model bikes.csv --json",
    "update model bikes.csv --out updated --json",
    "report model bikes.csv --out page.html",
    "plot model bikes.csv --out pictures",
    "predict model bikes.csv --out predicted.parquet",
    "predict model bikes.parquet --out other.csv",
)


def run(folder, environment, absent, *commands):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, absent, *commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory, environment):
    """What the same commands give with all packages, and without those two."""
    rng = np.random.default_rng(0)
    lines = ["day,wind,road,is wet,code,hires"]
    for row in range(80):
        wind = "" if row == 7 else f"{rng.uniform(0, 9):.2f}"
        road = rng.choice(["High Street", '"Mill Lane, East"', "NA"])
        hires = 20 + row / 4 + rng.normal()
        day = np.datetime64("2024-01-01") + row
        lines.append(f"{day},{wind},{road},{row % 3 == 0},0{row % 5},{hires:.3f}")
    found = {}
    for absent in ("nothing", "pyarrow,pandas"):
        folder = tmp_path_factory.mktemp("plain")
        (folder / "bikes.csv").write_text("\n".join(lines) + "\n")
        found[absent] = folder, run(folder, environment, absent, *COMMANDS)
    return found.values()


def test_the_command_works_and_gives_the_same(both):
    (folder, _), (bare, said) = both
    codes = [line for line in said.stderr.splitlines() if line.startswith("code")]
    assert codes == ["code 0"] * 6 + ["code 1"] * 2, said.stderr
    one, other = (where / "predicted.csv" for where in (folder, bare))
    assert one.read_bytes() == other.read_bytes()
    header = '"day","wind","road","is wet","code","hires","mean","std","q0.05"'
    assert one.read_text().startswith(header)
    assert "2024-01-08,," in one.read_text() and '"Mill Lane, East"' in one.read_text()
    results = [json.JSONDecoder().raw_decode(said.stdout)[0] for _, said in both]
    assert results[0]["elbo_per_row"] == results[1]["elbo_per_row"]
    assert (bare / "page.html").is_file() and any((bare / "pictures").iterdir())


def test_parquet_says_what_to_install(both):
    (folder, _), (bare, said) = both
    message = 'Parquet files need pyarrow: pip install "natgrad[parquet]"'
    assert said.stderr.count(f"Error: {message}") == 2
    assert not (bare / "predicted.parquet").exists()
    assert (folder / "predicted.parquet").exists()


def test_what_is_missing_is_said_before_anything_is_imported(tmp_path, environment):
    check = 'assert not sys.modules.keys() & {"jax", "numpy"}'
    code = f"{WITHOUT}\n{check}\n"
    commands = ("train a.csv --target y", "predict model a.csv --out b.csv")
    said = subprocess.run(
        [sys.executable, "-c", code, "sklearn,pyarrow,pandas,matplotlib", *commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    message = 'Error: this command needs scikit-learn: pip install "natgrad[sklearn]"'
    assert said.stderr.splitlines() == [message, "code 1"] * 2
