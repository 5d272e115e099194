"""Columns that come with the target, through the command: in memory and from disk."""

import json

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

import natgrad.sklearn


SHORT = "--num-inducing 8 --steps 30 --no-progress"
RNG = np.random.default_rng(0)
AGE = RNG.uniform(20, 70, 600)
PEOPLE = RNG.integers(5, 300, 600).astype(float)
TOWN = RNG.choice(["Bath", "Ely"], 600)
RATE = np.exp(np.sin(AGE / 10) - 3 + (TOWN == "Ely"))
LIFE = 5 * RATE * RNG.weibull(2.0, 600) / RATE.mean()
TABLE = arrow.table(
    {
        "age": AGE,
        "town": TOWN,
        "people": PEOPLE,
        "accidents": RNG.poisson(PEOPLE * RATE).astype(float),
        "years": np.minimum(LIFE, 4.0),
        "ended": (LIFE <= 4.0).astype(float),
        "low": arrow.array(np.minimum(LIFE, 4.0)),
        "high": arrow.array(LIFE, mask=LIFE > 4.0),
        "twice": np.where(TOWN == "Ely", 2.0, 1.0),
    }
)
COUNTED = ("poisson", "negative-binomial")
COUNTS = "--target accidents --inputs age,town --columns exposure=people"
OF_TEXT = "--target accidents --inputs age --columns exposure=town"
LIVES = "--target years --inputs age,town --columns event=ended"
BOUNDS = "--target years --inputs age,town --columns lower=low,upper=high"


@pytest.fixture(scope="module")
def said(folder, batch):
    parquet.write_table(TABLE, folder / "one.parquet")
    parquet.write_table(TABLE.select(["age", "town"]), folder / "bare.parquet")
    commands = {
        "memory": f"train one.parquet {COUNTS} {SHORT} --out memory --json",
        "evaluate": "evaluate memory one.parquet --json",
        "predict": "predict memory one.parquet --out with.parquet",
        "predict bare": "predict memory bare.parquet --out without.parquet",
        "unknown": f"train one.parquet {COUNTS.replace('exposure', 'exposed')}",
        "absent": f"train one.parquet {COUNTS.replace('people', 'persons')}",
        "twice": f"train one.parquet {COUNTS.replace('=people', '=age')}",
        "text": f"train one.parquet {OF_TEXT}",
    }
    for name in ("unknown", "absent", "twice", "text"):
        commands[name] += " --out refused"
    return dict(zip(commands, batch(*commands.values()), strict=True))


@pytest.fixture(scope="module")
def more(said, folder, batch):
    """The same from disk, and the other kinds of columns."""
    (folder / "many").mkdir()
    for part in range(2):
        some = TABLE.slice(300 * part, 300)
        path = folder / "many" / f"{part}.parquet"
        parquet.write_table(some, path, row_group_size=50)
    commands = {
        "disk": f"train many {COUNTS} {SHORT} --out disk --json",
        "lives": f"train one.parquet {LIVES} {SHORT} --out lives --json",
        "lives on disk": f"train many {LIVES} {SHORT} --out lives_disk --json",
        "bounds": f"train many {BOUNDS} --likelihood weibull {SHORT} --out bounds "
        "--json",
        "weights": f"train many --target years --inputs age,town --likelihood gamma "
        f"--columns weight=twice {SHORT} --out weights --json",
        "evaluate disk": "evaluate disk one.parquet --json",
        "evaluate lives": "evaluate lives_disk one.parquet --json",
        "text": f"train many {OF_TEXT} --out refused",
        "predict many": "predict disk many --out parts",
        "again": "train --config disk/run.toml --out again --json",
    }
    return said | dict(zip(commands, batch(*commands.values()), strict=True))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "likelihoods"),
    [
        ("memory", COUNTED),
        ("disk", COUNTED),
        ("lives", ("weibull",)),
        ("lives on disk", ("weibull",)),
        ("bounds", ("weibull",)),
        ("weights", ("gamma",)),
    ],
)
def test_it_trains(more, name, likelihoods):
    assert more[name].code == 0, more[name].err
    found = json.loads(more[name].out)
    assert found["likelihood"] in likelihoods and np.isfinite(found["elbo_per_row"])


def test_a_file_keeps_them_and_a_prediction_takes_what_there_is(said, folder):
    assert json.loads(said["memory"].out)["likelihood"] in COUNTED
    assert said["evaluate"].code == 0, said["evaluate"].err
    model = natgrad.sklearn.load(folder / "memory" / "model.natgrad")
    assert model.columns == {"exposure": "people"}
    assert said["predict"].code == said["predict bare"].code == 0
    with_people = parquet.read_table(folder / "with.parquet")["mean"].to_numpy()
    without = parquet.read_table(folder / "without.parquet")["mean"].to_numpy()
    np.testing.assert_allclose(with_people, PEOPLE * without, rtol=1e-9)


@pytest.mark.nightly
def test_what_cannot_be_is_named_on_disk(more):
    assert "'town' should be columns of numbers" in more["text"].err.replace("\n", " ")


@pytest.mark.nightly
def test_parts_of_a_table_are_the_table(more, folder):
    assert more["predict many"].code == 0, more["predict many"].err
    parts = parquet.read_table(folder / "parts")["mean"].to_numpy()
    loaded = natgrad.sklearn.load(folder / "disk" / "model.natgrad")
    frame = TABLE.select(["age", "town", "people"])
    np.testing.assert_allclose(parts, loaded.predict(frame), rtol=1e-6)


@pytest.mark.nightly
def test_memory_and_disk_know_the_same(more):
    one, other = (json.loads(more[name].out) for name in ("evaluate", "evaluate disk"))
    assert abs(one["log_density"] - other["log_density"]) < 0.1
    assert np.isfinite(json.loads(more["evaluate lives"].out)["log_density"])


@pytest.mark.nightly
def test_a_run_is_repeated(more):
    assert more["again"].code == 0, more["again"].err
    one, other = (json.loads(more[name].out) for name in ("disk", "again"))
    assert one["elbo_per_row"] == other["elbo_per_row"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown", "did you mean 'exposure'?"),
        ("absent", "the table has no column 'persons'"),
        (
            "twice",
            "exposure=age should name a column besides the target and the inputs",
        ),
        ("text", "the column of 'exposure' is not of numbers"),
    ],
)
def test_what_cannot_be_is_named(said, name, message):
    assert said[name].code == 1 and message in said[name].err.replace("\n", " ")
