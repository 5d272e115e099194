"""Breaks runs of several processes in every way we know, and starts them again.

    python experiments/faults.py             # and 100 kills: results/faults.md
    python experiments/faults.py --quick     # each fault once, as CI does

A run trains a linear model by guarded steps on Parquet files, in two processes that
save three times a second, and is broken; all its processes must be gone within a stated
limit, with codes that are not 0. Then it is started again. Its parameters must be those
of a run that was never touched, to the last bit; or, where a file is damaged, the error
must name the file.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hosts import Hosts, hosts  # noqa: E402


RESULTS = Path(__file__).parent / "results"
STEPS, RECORD = 1000, 20
STARTING, HEARTBEAT, PATIENCE = 40, 10, 10
"""What the limits of a run are set to here, in seconds."""

MOMENTS = 9.0
"""Seconds after a start within which it is killed: some runs have ended by then."""

AT_ONCE = 10.0
"""Seconds until all others are gone, where the system tells them of a loss."""

LIMITED = (
    "import os, resource, sys; size = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Begins a process that can write no file of more than so many bytes."""


def make_dataset(folder: Path) -> None:
    """20,000 rows in four files, with checksums for their pages."""
    import pyarrow as arrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (20_000, 3))
    y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_t(3, len(x))
    table = arrow.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    folder.mkdir(parents=True)
    for part in range(4):
        parquet.write_table(
            table.slice(5000 * part, 5000),
            folder / f"part-{part}.parquet",
            row_group_size=500,
            write_page_checksum=True,
        )


def work(dataset: str, out: Path, stuck_at: int) -> None:
    """One process of a run."""
    from natgrad import distributed

    here = distributed.initialize()

    import jax

    jax.config.update("jax_enable_x64", True)

    import jax.numpy as jnp

    import natgrad
    from natgrad.data import Parquet
    from natgrad.families import diagonal
    from natgrad.positive import Log
    from natgrad.train import stop_on_signals

    prior = diagonal.Moments(jnp.zeros(3), Log(jnp.zeros(3)))
    params = {"q": prior, "log_noise": jnp.zeros(())}
    rows = Parquet(dataset, "y", batch_size=128, seed=1)

    def loss(params, batch):
        q, log_noise = params["q"], params["log_noise"]
        error = (batch.y - batch.x @ q.mean) ** 2 + batch.x**2 @ q.variances()
        fit = log_noise + error * jnp.exp(-2 * log_noise) / 2
        return batch.weight @ fit + q.kl(prior)

    class Stuck(Parquet):
        """Never gives the batches of a step, as a disk may that is gone."""

        def take(self, step, number):
            if step <= stuck_at < step + number:
                time.sleep(10**6)
            return super().take(step, number)

    if stuck_at >= 0 and here.process == here.processes - 1:
        rows.__class__ = Stuck
    with stop_on_signals():
        fitted = natgrad.fit(
            loss,
            params,
            rows,
            steps=STEPS,
            log_every=RECORD,
            progress=False,
            checkpoint=out,
            save_seconds=0.3,
            resume=True,
        )
    if here.process == 0:
        leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(fitted.params)]
        (out / "digest").write_text(hashlib.sha256(b"".join(leaves)).hexdigest())


class Job:
    """The processes of a run, as a launcher has them."""

    def __init__(
        self,
        dataset: Path,
        out: Path,
        number: int = 2,
        file_size: int | None = None,
        stuck_at: int = -1,
        hosts: Hosts | None = None,
    ):
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = "127.0.0.1" if hosts is None else hosts.addresses[0]
        self.log = (out / "log.txt").open("a+")
        self.processes = []
        for process in range(number):
            environment = os.environ | {
                "JAX_PLATFORMS": "cpu",
                "NPROC": "1",
                "OMP_NUM_THREADS": "1",
                "NATGRAD_COORDINATOR": f"{address}:{port}",
                "NATGRAD_NUM_PROCESSES": str(number),
                "NATGRAD_PROCESS_ID": str(process),
                "NATGRAD_STARTING_SECONDS": str(STARTING),
                "NATGRAD_HEARTBEAT_SECONDS": str(HEARTBEAT),
                "NATGRAD_PATIENCE_SECONDS": str(PATIENCE),
            }
            command = [sys.executable, __file__, "work", str(dataset), str(out)]
            command += [str(stuck_at)]
            if file_size is not None:
                command = [sys.executable, "-c", LIMITED, str(file_size), *command]
            options = {"env": environment, "stdout": self.log, "stderr": self.log}
            if hosts is None:
                begun = subprocess.Popen(command, **options)
            else:
                begun = hosts.start(process, command, **options)
            self.processes.append(begun)

    def has_steps(self, number: int) -> bool:
        """Whether so many steps are recorded."""
        history = self.out / "history.jsonl"
        return history.exists() and history.read_text().count("\n") * RECORD >= number

    def is_over(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    def wait(self, condition: Callable[[], bool], seconds: float) -> float:
        """Waits for something, and says how long it took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds:
                self.end()
                raise AssertionError(
                    f"more than {seconds:g} seconds; the log ends\n{self.said()}"
                )
            time.sleep(0.01)
        return time.monotonic() - begun

    def until_steps(self, number: int) -> None:
        self.wait(lambda: self.has_steps(number) or self.is_over(), 120)
        assert not self.is_over(), self.said()

    def finish(self) -> str:
        """Lets it come to its end, and gives the digest of its parameters."""
        self.wait(self.is_over, 240)
        assert self.codes() == [0] * len(self.processes), self.said()
        return (self.out / "digest").read_text()

    def codes(self) -> list[int]:
        return [process.returncode for process in self.processes]

    def said(self) -> str:
        self.log.flush()
        return (self.out / "log.txt").read_text()[-3000:]

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


@dataclasses.dataclass
class Trial:
    """What every fault has at hand: the data set, a folder of its own, a generator."""

    dataset: Path
    out: Path
    rng: random.Random

    def job(self, **options) -> Job:
        return Job(self.dataset, self.out, **options)

    def broken(self, job: Job, limit: float) -> float:
        """Waits until all processes are gone, none of them as if all were well."""
        seconds = job.wait(job.is_over, limit)
        assert all(job.codes()), (job.codes(), job.said())
        return seconds


def killed(trial: Trial, victim: int, moment: float | None = None) -> float | None:
    """kill -9 of one process, after some steps or after some seconds.

    None, if the run had ended before.
    """
    job = trial.job()
    if moment is None:
        job.until_steps(trial.rng.randrange(60, 400))
    else:
        time.sleep(moment)
    if job.processes[victim].poll() is not None:
        job.wait(job.is_over, 240)
        return None
    job.processes[victim].kill()
    if moment is None:
        return trial.broken(job, AT_ONCE)
    # They may still be coming together, or one of them may be at its end.
    return job.wait(job.is_over, STARTING + AT_ONCE)


def stopped(trial: Trial) -> float:
    """SIGSTOP: its heart does not beat."""
    job = trial.job()
    job.until_steps(100)
    job.processes[1].send_signal(signal.SIGSTOP)
    seconds = job.wait(lambda: job.processes[0].poll() is not None, 2 * HEARTBEAT)
    job.processes[1].kill()  # as a launcher does
    trial.broken(job, AT_ONCE)
    return seconds


def stuck(trial: Trial) -> float:
    """Its heart beats, but it takes no step: the watchdog ends it."""
    job = trial.job(stuck_at=200)
    job.until_steps(100)
    return trial.broken(job, 3 * PATIENCE)


def terminated(trial: Trial) -> float:
    """SIGTERM to one of them: all save the same step, and leave."""
    job = trial.job()
    job.until_steps(100)
    job.processes[1].terminate()
    seconds = trial.broken(job, AT_ONCE)
    assert job.codes() == [143, 143], job.codes()
    return seconds


def full(trial: Trial) -> float:
    """No checkpoint can be written, and the run ends with that."""
    job = trial.job(file_size=1000)
    seconds = trial.broken(job, 240)
    assert "could not be written" in job.said(), job.said()
    return seconds


def flipped(trial: Trial) -> float:
    """One bit of the newest checkpoint: it is skipped with a warning."""
    killed(trial, 1)
    damaged = max(trial.out.glob("*.natgrad"), key=lambda path: int(path.stem))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    return 0.0


def truncated(trial: Trial) -> float:
    """A file of the data set is cut in mid-epoch: the error names it."""
    victim = trial.dataset / "part-2.parquet"
    whole = victim.read_bytes()
    job = trial.job()
    job.until_steps(60)
    victim.write_bytes(whole[: len(whole) // 2])
    try:
        seconds = trial.broken(job, 60)
    finally:
        victim.write_bytes(whole)
    assert "part-2.parquet" in job.said(), job.said()
    return seconds


def cut(trial: Trial) -> float:
    """The cable between two hosts is cut."""
    with hosts(2) as some:
        job = trial.job(hosts=some)
        job.until_steps(100)
        some.cut(1)
        return trial.broken(job, 3 * HEARTBEAT)


FAULTS: dict[str, tuple[Callable[[Trial], float | None], str]] = {
    "kill -9 of a worker": (lambda trial: killed(trial, 1), f"{AT_ONCE:g} s"),
    "kill -9 of the coordinator": (lambda trial: killed(trial, 0), f"{AT_ONCE:g} s"),
    "SIGTERM to one": (terminated, f"{AT_ONCE:g} s"),
    "SIGSTOP of one": (stopped, f"2 heartbeats, {2 * HEARTBEAT} s"),
    "stuck": (stuck, f"3 x its patience, {3 * PATIENCE} s"),
    "cable cut": (cut, f"3 heartbeats, {3 * HEARTBEAT} s"),
    "disk full": (full, "the end of the run"),
    "a flipped bit": (flipped, "-"),
    "a truncated file": (truncated, "the next read of it"),
}


def many_kills(
    folder: Path, dataset: Path, number: int, digest: str
) -> tuple[int, list[float]]:
    """Kills runs at random moments, start-up included, in turn each process."""
    rng, kills, taken, runs = random.Random(0), 0, [], 0
    while kills < number:
        trial = Trial(dataset, folder / f"killed-{runs}", rng)
        runs += 1
        while kills < number and not (trial.out / "digest").exists():
            seconds = killed(trial, kills % 2, rng.uniform(0, MOMENTS))
            if seconds is None:
                continue
            taken.append(seconds)
            kills += 1
            print(
                f"kill {kills} of run {runs}: others gone in {seconds:.2f} s",
                flush=True,
            )
        if not (trial.out / "digest").exists():
            trial.job().finish()
        assert (trial.out / "digest").read_text() == digest, trial.out
    return runs, sorted(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each fault once")
    parser.add_argument("--kills", type=int, default=100, help="at random moments")
    parser.add_argument("--only", help="one fault")
    options = parser.parse_args()
    rows, rng = [], random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = folder / "data"
        make_dataset(dataset)
        digest = Job(dataset, folder / "unbroken").finish()
        for fault, (break_it, limit) in FAULTS.items():
            if options.only not in (None, fault):
                continue
            trial = Trial(dataset, folder / fault.replace(" ", "-"), rng)
            seconds = break_it(trial) or 0.0
            begun = time.monotonic()
            found = trial.job().finish()
            again = time.monotonic() - begun
            assert found == digest, f"{fault}: the parameters differ"
            if fault == "a flipped bit":
                assert "is skipped" in (trial.out / "log.txt").read_text()
            rows.append((fault, f"{seconds:.1f} s", limit, "yes"))
            print(
                f"{fault}: gone in {seconds:.1f} s, ended {again:.0f} s later, equal",
                flush=True,
            )
        if not options.quick and options.only is None:
            runs, taken = many_kills(folder, dataset, options.kills, digest)
            said = f"{options.kills} kills -9 at random moments, {runs} runs"
            middle, most = taken[len(taken) // 2], taken[-1]
            within = f"{middle:.1f} s in the middle, {most:.1f} s at most"
            limit = f"{STARTING} s to come together, {AT_ONCE:g} s after"
            rows.append((said, within, limit, "yes"))
            write(options.kills, rows)
    print("all equal, bit for bit")


def write(kills: int, rows: list[tuple[str, ...]]) -> None:
    lines = [f"Made by `python experiments/faults.py --kills {kills}`.", ""]
    lines += ["| fault | all processes gone after | limit | then equal, bit for bit |"]
    lines += ["|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    (RESULTS / "faults.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
