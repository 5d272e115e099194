"""Ray is told the right things; benchmarks/ray_run.py is the same with Ray itself."""

import importlib
import os
import socket
import sys
import types
from pathlib import Path

import pytest

import natgrad.cli
from natgrad import distributed
from natgrad.errors import FitError


class Plain:
    pass


class Options(types.SimpleNamespace):
    pass


class Trainer:
    """Runs the workers one after the other, in this process."""

    def __init__(self, loop, **options):
        self.loop, self.options = loop, options

    def fit(self):
        config = self.options["backend_config"]
        group = Group(self.options["scaling_config"].num_workers)
        config.backend_cls().on_start(group, config)
        for _ in range(len(group)):
            self.loop(self.options["train_loop_config"])


class Group:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def execute_single(self, rank, function, *arguments):
        assert 0 <= rank < self.count
        return function(*arguments)

    execute_single_async = execute_single


@pytest.fixture
def ray(monkeypatch):
    """The module, with as much of Ray as it uses."""
    names = {
        "ray": {
            "get": list,
            "util": types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1"),
        },
        "ray.train": dict.fromkeys(
            ("FailureConfig", "RunConfig", "ScalingConfig"), Options
        ),
        "ray.train.backend": {"Backend": Plain, "BackendConfig": Plain},
        "ray.train.v2": {},
        "ray.train.v2.api": {},
        "ray.train.v2.api.data_parallel_trainer": {"DataParallelTrainer": Trainer},
    }
    for name, members in names.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("COORDINATOR", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.setenv(f"NATGRAD_{name}", "")
    monkeypatch.delitem(sys.modules, "natgrad.ray", raising=False)
    yield importlib.import_module("natgrad.ray")
    sys.modules.pop("natgrad.ray", None)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_each_worker_knows_who_it_is_and_runs_the_command(
    ray, workers, monkeypatch, tmp_path
):
    started, told = [], []

    def start():
        address = os.environ["NATGRAD_COORDINATOR"]
        started.append((*distributed.place(), address))

    def main(arguments):
        told.append((arguments, Path.cwd()))
        monkeypatch.chdir("/")  # as Ray does, to a folder of its own
        sys.exit(0)

    monkeypatch.setattr(distributed, "start", start)
    monkeypatch.setattr(natgrad.cli, "main", main)
    monkeypatch.chdir(tmp_path)
    ray.train(("train", "--out", "model"), workers=workers)
    address = started[0][-1]
    assert started == [(process, workers, address) for process in range(workers)]
    host, port = address.split(":")
    socket.create_server((host, int(port))).close()
    assert told == [(["train", "--out", "model"], tmp_path)] * workers


@pytest.mark.parametrize("code", [1, 2, 17, 143])
def test_a_command_that_fails_is_a_worker_that_fails(ray, code, monkeypatch):
    monkeypatch.setattr(distributed, "start", lambda: None)
    monkeypatch.setattr(natgrad.cli, "main", lambda _: sys.exit(code))
    with pytest.raises(FitError, match=f"code {code}$"):
        ray.train(["train"])


def test_what_ray_is_asked_for(ray, monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(Trainer, "fit", lambda self: asked.update(self.options))
    monkeypatch.chdir(tmp_path)
    ray.train(["train"], 3, 7, {"CPU": 2.0, "GPU": 1.0}, "runs")
    assert asked["scaling_config"].num_workers == 3
    assert asked["scaling_config"].resources_per_worker == {"CPU": 2.0, "GPU": 1.0}
    assert asked["run_config"].failure_config.max_failures == 7
    assert asked["run_config"].storage_path == str(tmp_path / "runs")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "natgrad.ray", raising=False)
    with pytest.raises(ImportError, match=r"pip install \"natgrad\[ray\]\""):
        importlib.import_module("natgrad.ray")
