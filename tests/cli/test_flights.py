"""The page on flights, run as it is written: a kill in the middle changes nothing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "flights.md"


def blocks():
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs some blocks one after the other, with this Python's own commands."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NATGRAD_HEARTBEAT_SECONDS": "20",
    }

    def run(folder, *scripts):
        found = subprocess.run(
            ["bash", "-u", "-c", "\n".join(scripts)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
        return found.stdout, found.stderr

    return run


@pytest.mark.nightly
@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
@pytest.mark.parametrize("steps", [600, 2000], ids=["brief", "whole"])
def test_the_page_on_flights(steps, shell, tmp_path):
    data, shuffled, config, start, killed, again, used = blocks()
    assert "steps = 2000" in config  # 600 take longer than a checkpoint waits, 10 s
    config = config.replace("steps = 2000", f"steps = {steps}")
    shell(tmp_path, data, shuffled, config, start)
    out, _ = shell(tmp_path, killed)
    assert "the first process left with code 17" in out
    assert not (tmp_path / "model" / "model.natgrad").exists()
    history = (tmp_path / "model" / "history.jsonl").read_text().splitlines()
    _, said = shell(tmp_path, again)
    assert "continuing from step" in said
    assert len(history) < len(
        (tmp_path / "model" / "history.jsonl").read_text().splitlines()
    )
    out, _ = shell(tmp_path, used)
    found = dict(re.findall(r"^(\S.*?)  +(\S+)$", out, re.M))
    assert float(found["log density"]) > (-4.75 if steps == 2000 else -5.5)
    assert len(list((tmp_path / "pictures").glob("*.png"))) >= 3

    # Never killed, it is the same.
    shutil.move(tmp_path / "model", tmp_path / "resumed")
    shell(tmp_path, again)
    evaluated = used.splitlines()[0]
    shell(tmp_path, f"{evaluated} --json > one.json")
    shell(tmp_path, f"{evaluated.replace('model', 'resumed')} --json > two.json")
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()
