"""The command line, as a user has it: processes, files and signals."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as arrow
import pyarrow.csv
import pyarrow.parquet
import pytest


COMMAND = [sys.executable, "-c", "from natgrad._cli import main; main()"]
LIMITED = [
    sys.executable,
    "-c",
    "import os, resource, sys; size = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); "
    "os.execv(sys.argv[2], sys.argv[2:])",
]
"""Begins a command that can write no file of more than so many bytes."""

TRAIN = "train houses.csv --target price --num-inducing 20"
SHORT, LONG = f"{TRAIN} --steps 100", f"{TRAIN} --steps 2000"


# Many commands in one process, as importing JAX costs more than most of them.
BATCH = """
import contextlib, io, json, sys
from natgrad._cli import main

for arguments in json.loads(sys.argv[1]):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    out.flush()
    said = [code, out.buffer.getvalue().decode(), err.getvalue()]
    print(json.dumps(said), flush=True)
"""


class Said:
    """What a command left behind."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def environment(folder):
    """Programs are compiled once for all processes."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "COLUMNS": "80",
    }


@pytest.fixture(scope="session")
def natgrad(folder, environment):
    """Runs one command in a process of its own."""

    def run(arguments, code=0, file_size=None, **options):
        limit = [] if file_size is None else [*LIMITED, str(file_size)]
        found = subprocess.run(
            [*limit, *COMMAND, *arguments.split()],
            **{"cwd": folder, "env": environment} | options,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == code, found.stderr[-3000:]
        return Said(code, found.stdout, found.stderr)

    return run


@pytest.fixture(scope="session")
def batch(folder, environment):
    """Runs commands one after the other in one process."""

    def run(*commands):
        found = subprocess.run(
            [
                sys.executable,
                "-c",
                BATCH,
                json.dumps([one.split() for one in commands]),
            ],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said = [Said(*json.loads(line)) for line in found.stdout.splitlines()]
        assert len(said) == len(commands), found.stderr[-3000:]
        return said

    return run


@pytest.fixture(scope="session")
def data(folder):
    """A table of 150 houses, in several files, and some that are wrong."""
    rng = np.random.default_rng(0)
    size, new = rng.uniform(30, 200, 150).round(1), rng.random(150) < 0.3
    town = rng.choice(["Bath", "Ely", "Rye"], 150)
    price = 100 + 2 * size + 50 * (town == "Bath") + 15 * rng.standard_t(2, 150)
    table = arrow.table(
        {
            "size": size,
            "town": town,
            "new": new,
            "price": price.round(2),
            "sold": np.where(price + 30 * rng.normal(size=150) > 300, "yes", "no"),
        }
    )
    pyarrow.csv.write_csv(table, folder / "houses.csv")
    pyarrow.parquet.write_table(table, folder / "houses.parquet")
    pyarrow.csv.write_csv(table.drop_columns(["size"]), folder / "sizeless.csv")
    towns = arrow.array(np.where(np.arange(150) == 7, "York", town))
    pyarrow.csv.write_csv(table.set_column(1, "town", towns), folder / "york.csv")
    hole = arrow.array(size, mask=np.arange(150) == 3)
    pyarrow.csv.write_csv(table.set_column(0, "size", hole), folder / "hole.csv")
    whole = (folder / "houses.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "latin.csv").write_bytes("größe\n1\n".encode("latin-1"))
    (folder / "wrong.toml").write_text("[model]\nlikelyhood = 'gaussian'\n")
    return table


@pytest.fixture(scope="session")
def trained(natgrad, data):
    """A short run by the one command that a user begins with."""
    return natgrad(f"{SHORT} --inputs size,town,new --out model --json")


@pytest.fixture(scope="session")
def used(batch, trained):
    """All that is done with a model, by name."""
    commands = {
        "predict": "predict model houses.csv --out first.parquet",
        "keep": "predict model houses.csv --out kept.csv --keep all --json",
        "stream": "predict model houses.csv --out - --quantiles 0.1,0.9",
        "evaluate": "evaluate model houses.parquet",
        "evaluate --json": "evaluate model houses.parquet --json",
        "info": "info model",
        "info --json": "info model/model.natgrad --json",
        "plot folder": "plot model houses.csv --out pictures",
        "plot file": "plot model houses.csv --out pictures.png",
        "report": "report model houses.csv --out page.html",
        "datasets": "datasets --json",
        "dataset": "datasets energy",
        "doctor": "doctor",
        "doctor --json": "doctor --json",
        # What goes wrong.
        "missing column": "predict model sizeless.csv --out p.csv",
        "unknown category": "predict model york.csv --out p.csv",
        "null": "predict model hole.csv --out p.csv",
        "corrupt": "evaluate model cut.parquet",
        "no file": "evaluate model nowhere.csv",
        "no model": "info nowhere",
        "not a model": "info houses.csv",
        "no such place": "predict model houses.csv --out no/p.csv",
        "no such kind": "predict model houses.csv --out p.xlsx",
        "onto the data": "predict model houses.csv --out ./houses.csv",
        "no page": "report model houses.csv --out houses.csv",
        "no UTF-8": "evaluate model latin.csv",
        "no target": f"{SHORT} --target prize --out m",
        "no inputs": f"{SHORT} --inputs size,tone --out m",
        "strings": f"{SHORT} --target sold --likelihood gamma --out m",
        "order": f"{SHORT} --target town --likelihood ordinal --out m",
        "no proportion": f"{SHORT} --likelihood beta --out m",
        "kernel": f"{SHORT} --kernel matern --out m",
        "wrong key": "train --config wrong.toml --out m",
        "again": f"{SHORT} --out model",
        "resume": "resume model",
        "out is a file": f"{SHORT} --out houses.csv",
        "debug": "info nowhere --debug",
        "quantiles": "predict model houses.csv --out p.csv --quantiles 5,95",
        "usage": "train houses.csv --out m",
        "no such command": "trian",
    }
    return dict(zip(commands, batch(*commands.values()), strict=True))
