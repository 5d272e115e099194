"""A run that is killed is the run that was not."""

import subprocess
import sys
from pathlib import Path

import pytest


KILLS = Path(__file__).parents[2] / "experiments" / "kills.py"


@pytest.mark.parametrize(
    ("kills", "steps"), [(2, 5000), pytest.param(30, 30_000, marks=pytest.mark.nightly)]
)
def test_kills_change_no_bit(kills, steps):
    told = ["--kills", str(kills), "--steps", str(steps)]
    command = [sys.executable, str(KILLS), *told]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert ", and 0 kills lost" in found.stdout
