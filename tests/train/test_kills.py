"""A run that is killed is the run that was not."""

import subprocess
import sys
from pathlib import Path

import pytest


KILLS = Path(__file__).parents[2] / "experiments" / "kills.py"


# One at any time, one during a save, and one during a restore.
@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.long)])
def test_kills_change_no_bit(kills):
    command = [sys.executable, str(KILLS), "--kills", str(kills)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert ", and 0 kills lost" in found.stdout
