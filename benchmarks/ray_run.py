"""The command through Ray Train, in peace and with a worker killed.

    pip install "natgrad[ray]"
    python benchmarks/ray_run.py --out benchmarks/results

Two workers train on a small data set. Both runs should end with the same model, bit for
bit. Before that each of two workers with a loop of their own says how many processes
JAX knows of: without our backend it would be one.
"""

import argparse
import contextlib
import os
import platform
import signal
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

import broken
import psutil
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import natgrad.ray


WORKERS = 2


def count_processes(config: dict[str, str]) -> None:
    import jax

    path = Path(config["folder"]) / f"count-{jax.process_index()}"
    path.write_text(str(jax.process_count()))


def counted(folder: Path) -> list[int]:
    """How many processes there are, by each of them."""
    DataParallelTrainer(
        count_processes,
        train_loop_config={"folder": str(folder)},
        backend_config=natgrad.ray.Together(),
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(storage_path=str(folder)),
    ).fit()
    return [int(path.read_text()) for path in sorted(folder.glob("count-*"))]


def workers() -> list[int]:
    """The processes of the workers, oldest first."""
    below = psutil.Process().children(recursive=True)
    named = [each for each in below if "RayTrainWorker" in " ".join(each.cmdline())]
    return [each.pid for each in sorted(named, key=lambda each: each.create_time())]


class Killer(threading.Thread):
    """Kills a worker when there is a checkpoint, and sees when there is another."""

    def __init__(self, folder: Path):
        super().__init__(daemon=True)
        self.folder, self.seconds = folder, 0.0

    def run(self) -> None:
        broken.wait_for_middle(self.folder)
        victim, last = workers()[-1], broken.checkpoints(self.folder)[-1]
        begun = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        broken.wait_for(lambda: broken.is_beyond(self.folder, last))
        self.seconds = time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--quick", action="store_true", help="in peace alone")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level="WARNING")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        counts = counted(Path(name))
        ways = ("in peace", "a worker killed")
        for way in ways[: 1 if arguments.quick else 2]:
            folder = broken.prepare(Path(name) / way.replace(" ", "-"), arguments.steps)
            killer = Killer(folder)
            if way != "in peace":
                killer.start()
            begun = time.monotonic()
            with contextlib.chdir(folder):
                natgrad.ray.train(
                    ["train", *broken.COMMAND, "--resume"],
                    workers=WORKERS,
                    storage_path=Path(name) / "ray",
                )
            seconds = round(time.monotonic() - begun)
            if way != "in peace" and not killer.seconds:
                raise SystemExit("no worker was killed")
            lost = f"{killer.seconds:.0f}" if killer.seconds else ""
            rows.append((way, seconds, lost, broken.digest(folder)[:16]))
    ray.shutdown()
    head = ["", "seconds", "from the kill to the next checkpoint", "model"]
    table = broken.table(head, rows)
    said = f"Processes that JAX knows of, by each of {WORKERS} workers: {counts}."
    print(f"{said}\n\n{table}")
    if arguments.out is not None:
        command = f"python benchmarks/ray_run.py --steps {arguments.steps}"
        versions = f"Ray {metadata.version('ray')}, Python {platform.python_version()}"
        text = f"`{command}`: {versions}, one machine. {said}\n\n{table}\n"
        (arguments.out / "ray.md").write_text(text)
    if counts != [WORKERS] * WORKERS or len({row[-1] for row in rows}) > 1:
        raise SystemExit("the workers are not one, or the models differ")


if __name__ == "__main__":
    main()
