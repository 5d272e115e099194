"""Runs that were ended by a scheduler, by Ctrl-C and by a full disk."""

import shutil
import signal
import subprocess
import time

import numpy as np
import pyarrow.csv
import pytest

from .conftest import COMMAND, LONG, SHORT, Said


@pytest.fixture(scope="module")
def signalled(folder, environment):
    """Begins a command, and sends it a signal once it has recorded some steps."""

    def run(arguments, history, number, code):
        before = history.stat().st_size if history.exists() else 0
        process = subprocess.Popen(
            [*COMMAND, *arguments.split()],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None and not (
            history.exists() and history.stat().st_size > before
        ):
            time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate()
        assert process.returncode == code, err[-3000:]
        assert "Traceback" not in err
        return Said(code, out, err)

    return run


@pytest.fixture(scope="module")
def broken_off(folder, natgrad, batch, signalled, trained):
    """What commands said that were broken off, and those that came after."""
    history = folder / "stopped" / "history.jsonl"
    ended = signalled(f"{LONG} --out stopped", history, signal.SIGTERM, 143)
    shutil.copytree(folder / "stopped", folder / "ended")
    stopped = signalled("resume stopped --json", history, signal.SIGINT, 130)

    shutil.copytree(folder / "model", folder / "kept")
    history = folder / "kept" / "replacement" / "history.jsonl"
    kept = signalled(f"{LONG} --out kept --force --json", history, signal.SIGINT, 130)

    # From here on no file may grow beyond so many bytes.
    full = natgrad(f"{SHORT} --out full", code=1, file_size=1500)
    assert not (folder / "full" / "model.natgrad").exists()

    (folder / "sold.toml").write_text(
        '[data]\ndata = "hole.csv"\ntarget = "sold"\nnulls = "drop"\n'
        'inputs = ["size", "new"]\n[model]\nnum_inducing = 20\n[training]\nsteps=100\n'
    )
    commands = {
        "info ended": "info ended",
        "info stopped": "info stopped --json",
        "predict stopped": "predict stopped houses.csv --out early.csv",
        "train stopped": f"{LONG} --out stopped",
        "train whole": "train --config stopped/run.toml --out whole --json",
        "resume": "resume stopped --json",
        "info kept": "info kept --json",
        "train kept": f"{LONG} --out kept",
        "resume kept": "resume kept --json",
        "predict resumed": "predict stopped houses.csv --out stopped.csv",
        "predict whole": "predict whole houses.csv --out whole.csv",
        "resume full": "resume full --json",
        "predict again": "predict model houses.csv --out second.parquet",
        "train sold": "train --config sold.toml --out sold --json",
        "predict sold": "predict sold hole.csv --out sold.csv --keep sold",
        "evaluate sold": "evaluate sold hole.csv --json",
        "info sold": "info sold --json",
    }
    said = dict(zip(commands, batch(*commands.values()), strict=True))
    return said | {"ended": ended, "stopped": stopped, "kept": kept, "full": full}


def test_ctrl_c_keeps_the_model_and_the_run_can_go_on(folder, broken_off):
    stopped = broken_off["stopped"]
    assert "natgrad resume stopped continues it" in stopped.err
    assert 0 < stopped.json["steps"] < 2000
    before = broken_off["info stopped"].json
    assert before["is_resumable"] and before["message"].startswith("interrupted")
    assert before["steps"] == stopped.json["steps"]
    assert broken_off["predict stopped"].code == 0
    refused = broken_off["train stopped"]
    assert refused.code == 1
    assert "has a run that was interrupted: natgrad resume stopped" in refused.err


def test_a_run_that_was_broken_off_ends_where_a_whole_one_does(folder, broken_off):
    resumed, whole = broken_off["resume"], broken_off["train whole"]
    assert resumed.json["steps"] == whole.json["steps"] <= 2000
    assert resumed.json["elbo_per_row"] == whole.json["elbo_per_row"]
    for name in ("run.toml", "../{}.csv"):
        parts = [folder / each / name.format(each) for each in ("stopped", "whole")]
        assert parts[0].read_bytes() == parts[1].read_bytes()
    assert not (folder / "stopped" / "checkpoint").exists()


def test_an_old_model_stays_until_the_new_one_is_complete(folder, broken_off):
    kept = broken_off["kept"]
    assert "kept keeps its old model until the new one is complete" in kept.err
    assert "kept keeps the old one; natgrad resume kept continues it" in kept.err
    assert 0 < kept.json["steps"] < 2000
    assert kept.json["model"] == "kept/replacement/model.natgrad"
    before = broken_off["info kept"].json
    assert before["is_resumable"] and before["bytes"] == (
        (folder / "model" / "model.natgrad").stat().st_size
    )
    assert "natgrad resume kept continues it" in broken_off["train kept"].err


def test_a_replacement_that_is_resumed_ends_where_a_whole_run_does(folder, broken_off):
    resumed, whole = broken_off["resume kept"], broken_off["train whole"]
    assert "continuing from step" in resumed.err
    assert resumed.json["model"] == "kept/model.natgrad"
    for key in ("steps", "elbo_per_row"):
        assert resumed.json[key] == whole.json[key]
    names = {path.name for path in (folder / "kept").iterdir()}
    assert names == {"model.natgrad", "run.toml", "history.jsonl"}


def test_a_scheduler_is_obeyed(folder, broken_off):
    assert (
        "terminated; continue with: natgrad resume stopped" in broken_off["ended"].err
    )
    assert not broken_off["ended"].out
    found = broken_off["info ended"]
    assert found.code == 1
    assert "ended has no model yet, as its training was interrupted" in found.err
    assert list((folder / "ended/checkpoint").glob("*.natgrad"))


def test_a_full_disk_is_said_and_costs_no_run(folder, broken_off):
    found = broken_off["full"]
    last = found.err.splitlines()[-1]
    assert last.startswith("error: ") and "Traceback" not in found.err, found.err
    assert "could not be written" in last and "natgrad resume full" in last
    assert 0 < broken_off["resume full"].json["steps"] <= 100
    assert (folder / "full" / "model.natgrad").exists()


def test_predictions_are_the_same_bytes_in_any_process(folder, used, broken_off):
    assert broken_off["predict again"].code == 0
    first, second = (folder / f"{name}.parquet" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_classes_come_back_as_they_were_written(folder, broken_off):
    said = broken_off["train sold"]
    assert "dropped 1 of 150 rows: they have a null" in said.err
    assert said.json["likelihood"] == "bernoulli" and said.json["rows"] == 149
    told = broken_off["predict sold"].err
    assert "1 row with a null: predictions there are null" in told
    table = pyarrow.csv.read_csv(folder / "sold.csv").to_pydict()
    assert list(table) == ["sold", "class", "p(no)", "p(yes)"]
    assert table["p(no)"][3] is None and len(table["class"]) == 150
    chances = np.array([table["p(no)"], table["p(yes)"]], float)
    np.testing.assert_allclose(np.delete(chances, 3, axis=1).sum(0), 1)
    evaluated = broken_off["evaluate sold"].json
    assert evaluated["rows"] == 149 and evaluated["error"] < 0.3
    assert broken_off["info sold"].json["classes"] == ["no", "yes"]
