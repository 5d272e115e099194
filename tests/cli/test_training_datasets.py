"""Training from a data set by the command, and folders in every state."""

import json
import shutil

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest


# The tutorial on tables and test_predicting.py train from parts of a table, too.
pytestmark = pytest.mark.nightly

TRAIN = (
    "train --data data/*.parquet --target price --likelihood gaussian --num-inducing 8 "
    "--steps 40"
)


@pytest.fixture(scope="module")
def said(folder, batch):
    """What commands say of a data set of 600 houses, with a null and strings."""
    rng = np.random.default_rng(0)
    size = rng.uniform(30, 200, 600)
    town = rng.choice(["Bath", "Ely", "Rye"], 600)
    price = 100 + 2 * size + 50 * (town == "Bath") + rng.normal(0, 20, 600)
    table = arrow.table(
        {
            "size": arrow.array(size, mask=np.arange(600) == 7),
            "town": town,
            "price": price,
            "sold": np.where(price > 300, "yes", "no"),
        }
    )
    (folder / "data").mkdir()
    for part in range(2):
        some = table.slice(300 * part, 300)
        path = folder / "data" / f"{part}.parquet"
        parquet.write_table(some, path, row_group_size=50)
    (folder / "motorcycle").mkdir()  # as a data set is called
    (folder / "half" / "checkpoint").mkdir(parents=True)
    commands = {
        "null": f"{TRAIN} --out null",
        "train": f"{TRAIN} --nulls drop --out prices --json",
        "again": f"{TRAIN} --nulls drop --out prices --resume",
        "longer": f"{TRAIN} --nulls drop --out prices --resume --steps 50",
        "both": f"{TRAIN} --nulls drop --out prices --resume --force",
        "classes": f"{TRAIN} --target sold --likelihood auto --nulls mean "
        "--inputs size,town --out yes",
        "half": f"{TRAIN} --likelihood auto --nulls drop --out half --resume",
        "set": "train motorcycle --target accel --steps 5 --out motorcycle",
        "evaluate": "evaluate prices data/0.parquet --json",
    }
    return dict(zip(commands, batch(*commands.values()), strict=True))


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("null", 0, "filled in nulls, and added an indicator of them, in size; --nu"),
        ("train", 0, "dropped 1 of 600 rows: they have a null"),
        ("again", 0, "prices has a model, and its run has ended"),
        ("longer", 1, "prices has a run with steps 40, and not 50"),
        ("both", 2, "--force starts a new run and --resume continues one"),
        ("classes", 0, "the target has 2 classes: no, yes"),
        ("half", 0, "its noise may be gaussian, student-t or heteroskedastic"),
        ("half", 0, "saved in half"),
        ("set", 0, "saved in motorcycle"),
    ],
)
def test_a_command_says_what_it_does(said, name, code, message):
    assert said[name].code == code, said[name].err
    assert message in said[name].err


def test_a_model_of_a_dataset_is_a_model(said, folder):
    assert said["train"].json["rows"] == 599
    assert said["evaluate"].code == 0, said["evaluate"].err
    assert json.loads(said["evaluate"].out)["r2"] > 0.8
    names = {path.name for path in (folder / "prices").iterdir()}
    assert names == {"model.natgrad", "run.toml", "history.jsonl"}


def test_the_schema_goes_with_the_model(said, folder):
    shutil.copy(folder / "prices" / "model.natgrad", folder / "alone.natgrad")
    from natgrad.gp._files import FORMAT

    schema = FORMAT.read_metadata(folder / "alone.natgrad")["fitted"]["schema_"]
    kinds = {column["name"]: column["class"] for column in schema["columns"]}
    assert kinds == {"size": "number", "town": "category", "sold": "category"}
