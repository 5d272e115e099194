"""A run of several processes that is broken, in any way, is the run that was not."""

import subprocess
import sys
from pathlib import Path

import pytest


FAULTS = Path(__file__).parents[2] / "experiments" / "faults.py"


@pytest.mark.nightly
def test_every_fault_changes_no_bit():
    command = [sys.executable, str(FAULTS), "--quick"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
    assert found.stdout.count(", equal") == 9
