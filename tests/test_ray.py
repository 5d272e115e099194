"""The command through Ray Train; benchmarks/ray_run.py kills a worker of it as well."""

import subprocess
import sys
from pathlib import Path

import pytest


RAY_RUN = Path(__file__).parents[1] / "benchmarks" / "ray_run.py"


@pytest.mark.long
@pytest.mark.xdist_group("several processes")
def test_workers_of_ray_are_the_processes_of_one_run():
    command = [sys.executable, str(RAY_RUN), "--quick", "--steps", "60"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert "by each of 2 workers: [2, 2]" in found.stdout


def test_without_ray_the_extra_is_named():
    script = "import sys; sys.modules['ray'] = None; import natgrad.ray"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert 'pip install "natgrad[ray]"' in found.stderr
