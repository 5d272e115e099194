"""The command `natgrad` on many machines through Ray Train, which restarts it."""

# Ray is large, and Pyright runs without it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
import socket
from collections.abc import Sequence
from typing import Any

from natgrad import distributed
from natgrad.errors import FitError


__all__ = ["train"]


try:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.backend import Backend, BackendConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as error:
    raise ImportError(
        'training through Ray needs Ray Train: pip install "natgrad[ray]"', name="ray"
    ) from error


class Together(BackendConfig):
    """Makes the workers of a `DataParallelTrainer` the processes of one jax."""

    @property
    def backend_cls(self) -> type[Backend]:
        """What Ray starts the workers with."""
        return _Together


class _Together(Backend):
    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        address = worker_group.execute_single(0, _free_address)
        start, count = worker_group.execute_single_async, len(worker_group)
        ray.get([start(each, _start, address, count, each) for each in range(count)])


def train(
    arguments: Sequence[str],
    workers: int = 2,
    max_failures: int = 3,
    resources_per_worker: dict[str, float] | None = None,
    storage_path: str | os.PathLike[str] | None = None,
) -> None:
    """Runs the command `natgrad` with these arguments on all workers as one.

    Workers run in the current folder, which all must see. If one is lost, Ray restarts
    all of them, up to `max_failures` times. With `--resume` they continue from the last
    checkpoint. After that, Ray raises its own error. Ray keeps its own files in
    `storage_path`.

    >>> import natgrad.ray  # doctest: +SKIP
    >>> command = ["train", "table.parquet", "--target", "price", "--resume"]
    >>> natgrad.ray.train(command, workers=2)  # doctest: +SKIP
    """
    path = None if storage_path is None else os.path.abspath(storage_path)
    failures = FailureConfig(max_failures=max_failures)
    trainer = DataParallelTrainer(
        _command,
        train_loop_config={"arguments": list(arguments), "folder": os.getcwd()},
        backend_config=Together(),
        scaling_config=ScalingConfig(
            num_workers=workers, resources_per_worker=resources_per_worker
        ),
        run_config=RunConfig(storage_path=path, failure_config=failures),
    )
    trainer.fit()


def _command(config: dict[str, Any]) -> None:
    from natgrad._cli import main

    os.chdir(config["folder"])
    try:
        main(config["arguments"])
    except SystemExit as end:
        if end.code:
            raise FitError(f"natgrad ended with code {end.code}") from None


def _free_address() -> str:
    with socket.socket() as one:
        one.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{one.getsockname()[1]}"


def _start(coordinator: str, processes: int, process: int) -> None:
    os.environ["NATGRAD_COORDINATOR"] = coordinator
    os.environ["NATGRAD_NUM_PROCESSES"] = str(processes)
    os.environ["NATGRAD_PROCESS_ID"] = str(process)
    distributed.initialize()
