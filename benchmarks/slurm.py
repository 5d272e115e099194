"""The recipe for Slurm, on a Slurm of one node that is made for it and removed.

    apt-get install slurmctld slurmd slurm-client munge    # and as root:
    python benchmarks/slurm.py --out benchmarks/results

Two tasks train on a small data set three times: undisturbed; with one task killed, so
that all start again in the same allocation; and told, as Slurm does at the end of its
time, to save and to queue again. All three should end with the same model to the last
bit."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import broken


RECIPE = Path(__file__).parents[1] / "examples" / "scale" / "slurm.sbatch"

# Credentials that last for a moment, or what is queued again waits for two minutes.
CONFIGURATION = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """Its daemons, in the foreground of this process and gone with it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(
            host=host, ports=free_ports(2), folder=folder, cores=os.cpu_count()
        )
        (folder / "slurm.conf").write_text(text)
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")

    def __enter__(self) -> "Slurm":
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = ["munged", "--foreground", "--force", f"--key-file={key}"]
        for option in ("socket", "pid-file", "log-file", "seed-file"):
            munge.append(f"--{option}={self.folder}/munge.{option.partition('-')[0]}")
        try:
            self._start(*munge)
            broken.wait_for((self.folder / "munge.socket").exists, 20)
            self._start("slurmctld", "-D", "-c")
            self._start("slurmd", "-D")
            broken.wait_for(lambda: said("sinfo", "-h", "-o", "%t") == "idle", 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["scancel", "--user=root"], capture_output=True)
        jobs = lambda: said("squeue", "-h")
        if len(self.daemons) == 3 and jobs():
            broken.wait_for(lambda: not jobs(), 60)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(30)

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(command, stdout=log, stderr=log))


class Job:
    """The recipe as a job of two tasks, in a folder with a data set."""

    def __init__(self, folder: Path):
        self.folder, self.begun = folder, time.monotonic()
        shape = ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1"]
        command = ["sbatch", "--parsable", *shape, str(RECIPE)]
        self.number = said(*command, cwd=folder)

    def kill_one(self) -> None:
        listed = said("scontrol", "listpids", self.number).splitlines()
        tasks = [line.split() for line in listed]
        pids = [
            int(pid) for pid, _, step, *_, rank in tasks if step == "0" and rank == "1"
        ]
        os.kill(pids[0], signal.SIGKILL)

    def end_its_time(self) -> None:
        said("scancel", "--batch", "--signal=USR1", self.number)

    def wait(self) -> tuple[object, ...]:
        state = lambda: dict(
            pair.split("=", 1)
            for pair in said("scontrol", "show", "job", self.number).split()
            if "=" in pair
        )
        is_over = lambda: state()["JobState"] in ("COMPLETED", "FAILED", "CANCELLED")
        broken.wait_for(is_over, 600)
        seconds = round(time.monotonic() - self.begun)
        log = (self.folder / f"natgrad-{self.number}.log").read_text()
        tries = log.count("try ")
        found = state()
        if found["JobState"] != "COMPLETED":
            raise SystemExit(f"{log}\nthe job is {found['JobState']}")
        return tries, found["Restarts"], seconds, broken.digest(self.folder)[:16]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def said(*command: str, cwd: Path | None = None) -> str:
    found = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    # What the recipe calls natgrad is that of this Python.
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ways = {"in peace": None, "a task killed": Job.kill_one}
    ways["the time over"] = Job.end_its_time
    rows = []
    with tempfile.TemporaryDirectory() as name, Slurm(Path(name)):
        version = said("sinfo", "--version")
        for way, disturb in ways.items():
            folder = broken.prepare(Path(name) / way.replace(" ", "-"), arguments.steps)
            job = Job(folder)
            if disturb is not None:
                broken.wait_for_middle(folder)
                disturb(job)
            rows.append((way, *job.wait()))
            print(*rows[-1], flush=True)
    head = ["", "starts of the tasks", "times queued again", "seconds", "model"]
    table = broken.table(head, rows)
    print(table)
    if arguments.out is not None:
        command = f"python benchmarks/slurm.py --steps {arguments.steps}"
        text = f"`{command}`: {version}, 2 tasks on one node.\n\n"
        (arguments.out / "slurm.md").write_text(f"{text}{table}\n")
    if len({row[-1] for row in rows}) > 1:
        raise SystemExit("the models differ")


if __name__ == "__main__":
    main()
