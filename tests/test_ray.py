"""The command through Ray Train; benchmarks/ray_run.py kills a worker of it as well."""

import contextlib
import importlib
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from natgrad import _cli as cli
from natgrad.errors import FitError


TRAINER = "ray.train.v2.api.data_parallel_trainer"
RAY_RUN = Path(__file__).parents[1] / "benchmarks" / "ray_run.py"


@pytest.mark.nightly
def test_workers_of_ray_are_the_processes_of_one_run():
    pytest.importorskip("ray")
    command = [sys.executable, str(RAY_RUN), "--quick", "--steps", "60"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert "by each of 2 workers: [2, 2]" in found.stdout


@pytest.fixture
def without_ray(monkeypatch):
    """What is natgrad's own: Ray takes seconds to import, and is not everywhere."""
    bases = {"Backend": object, "BackendConfig": object}
    for name in ("ray", "ray.train", "ray.train.backend", TRAINER):
        monkeypatch.setitem(sys.modules, name, mock.MagicMock(**bases))
    yield importlib.import_module("natgrad.ray")
    del sys.modules["natgrad.ray"]


@pytest.mark.parametrize("code", [None, 0, 1, 17, 130])
def test_a_command_that_fails_fails_its_worker(
    without_ray, code, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "main", mock.Mock(side_effect=SystemExit(code)))
    config = {"folder": str(tmp_path), "arguments": ["info"]}
    failed = pytest.raises(FitError, match=f"ended with code {code}")
    with failed if code else contextlib.nullcontext():
        without_ray._command(config)


def test_without_ray_the_extra_is_named():
    script = "import sys; sys.modules['ray'] = None; import natgrad.ray"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert 'pip install "natgrad[ray]"' in found.stderr
