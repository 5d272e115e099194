"""A run that is killed is the run that was not."""

import subprocess
import sys
from pathlib import Path

import pytest


KILLS = Path(__file__).parents[2] / "experiments" / "kills.py"


@pytest.mark.long
def test_thirty_kills_change_no_bit():
    command = [sys.executable, str(KILLS), "--kills", "30"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert ", and 0 kills lost" in found.stdout
