"""A command that replaces a model and is killed leaves a whole one."""

import subprocess
import sys
from pathlib import Path

import pytest


REPLACEMENTS = Path(__file__).parents[2] / "experiments" / "replacements.py"


@pytest.mark.nightly  # test_replacing.py has a kill before every change, in one process
def test_kills_leave_a_whole_model():
    command = [sys.executable, str(REPLACEMENTS), "--kills", "20"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert "and after 0 a broken one or none" in found.stdout
