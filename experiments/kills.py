"""Kills runs with -9 at random moments, resumes them, and compares bit for bit.

    python experiments/kills.py --kills 300                  # results/kills.md
    python experiments/kills.py --kills 2 --steps 5000       # as the tests do

A run trains a linear model and saves three times a second. It is killed, in turns, at
any time, during a save, and during a restore, up to ten times; then it is left to end.
Its parameters must be those of a run that was never touched, to the last bit, and no
step before the last save that was finished may be lost.
"""

import argparse
import collections
import hashlib
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import struct
import tempfile
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import natgrad
from natgrad.families import diagonal
from natgrad.positive import Log
from natgrad.train import _checkpoint as checkpoint


jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
ROWS, WIDTH = 2000, 50
STEPS, PER_RUN = 30_000, 10
PHASES = ("starting", "restoring", "stepping", "saving", "ended")
KINDS = ("any time", "saving", "restoring")


class Board:
    """What a process says of itself in memory that outlives it."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 64)

    def say(self, phase: str | None = None, saved: int | None = None) -> None:
        if phase is not None:
            self.memory[0] = PHASES.index(phase)
        if saved is not None:
            self.memory[8:16] = struct.pack("q", saved)

    @property
    def phase(self) -> str:
        return PHASES[self.memory[0]]

    @property
    def saved(self) -> int:
        return struct.unpack("q", self.memory[8:16])[0]


def loss(params, batch):
    """Minus the evidence bound of a linear model with noise of unknown size."""
    q, log_noise = params["q"], params["log_noise"]
    prior = diagonal.Moments(jnp.zeros(WIDTH), Log(jnp.zeros(WIDTH)))
    error = (batch.y - batch.x @ q.mean) ** 2 + batch.x**2 @ q.variances()
    fit = log_noise + error * jnp.exp(-2 * log_noise) / 2
    return ROWS * fit.mean() + q.kl(prior)


def train(folder: Path, seed: int, steps: int, board: Board | None) -> str:
    """One process of a run; the SHA-256 of its parameters, if it gets to the end."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, WIDTH))
    y = x @ rng.standard_normal(WIDTH) + 0.3 * rng.standard_normal(ROWS)
    q = diagonal.Moments(jnp.zeros(WIDTH), Log(jnp.zeros(WIDTH)))
    params = {"q": q, "log_noise": jnp.zeros(())}
    if board is not None:
        watch(board)
    warnings.simplefilter("ignore")
    fitted = natgrad.fit(
        loss,
        params,
        (x, y),
        batch_size=32,
        steps=steps,
        progress=False,
        checkpoint=folder,
        save_seconds=0.3,
        resume=True,
    )
    if board is not None:
        board.say("ended")
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(fitted.params)]
    digest = hashlib.sha256(b"".join(leaves)).hexdigest()
    (folder / "digest").write_text(digest)
    return digest


def watch(board: Board) -> None:
    """Has the checkpoints tell when they are at work."""
    write, latest = (
        getattr(checkpoint.FolderCheckpoints, n) for n in ("_write", "latest")
    )

    def telling_write(self, document, data):
        board.say("saving")
        write(self, document, data)
        board.say("stepping", document["step"])

    def telling_latest(self):
        board.say("restoring")
        found = latest(self)
        board.say("stepping")
        return found

    checkpoint.FolderCheckpoints._write = telling_write
    checkpoint.FolderCheckpoints.latest = telling_latest


def child(folder: Path, seed: int, steps: int, board: Board) -> None:
    board.say("starting")
    train(folder, seed, steps, board)


def kill_at_random(process, board: Board, kind: str, rng: random.Random) -> str | None:
    """Kills a process and says in what phase; None if it had ended before."""
    if kind == "any time":
        process.join(rng.uniform(0, 3))
    else:
        seen = lambda: board.phase == kind or not process.is_alive()
        wait_for(seen, 60)
        skip = rng.randrange(3) if kind == "saving" else 0
        for _ in range(skip):
            wait_for(lambda: board.phase != kind, 60)
            wait_for(seen, 60)
        time.sleep(rng.uniform(0, 0.06))
    phase = board.phase
    if not process.is_alive() or phase == "ended":
        process.join()
        return None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return phase


def wait_for(is_so, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.0005)


def last_whole(folder: Path) -> int:
    """The step of the checkpoint that a run would go on from."""
    with checkpoint.FolderCheckpoints(folder) as checkpoints:
        found = checkpoints.latest()
        return -1 if found is None else found.step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each run")
    arguments = parser.parse_args()
    rng, steps = random.Random(arguments.seed), arguments.steps
    # Processes share what is compiled, so that each is at work soon.
    scratch = Path(tempfile.mkdtemp())
    jax.config.update("jax_compilation_cache_dir", str(scratch / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # A fork of this process has all imported, and nothing of JAX started.
    fork = multiprocessing.get_context("fork")
    warnings.filterwarnings("ignore", message=".*fork.*")

    def run_whole(folder: Path, seed: int) -> str:
        process = fork.Process(target=train, args=(folder, seed, steps, None))
        process.start()
        process.join()
        return (folder / "digest").read_text()

    kills, phases, runs, same, lost, begun = (
        0,
        collections.Counter(),
        0,
        0,
        0,
        time.time(),
    )
    while kills < arguments.kills:
        seed, folder = runs % 3, scratch / f"run-{runs}"
        reference = scratch / f"reference-{seed}"
        if not reference.exists():
            run_whole(reference, seed)
        board = Board()
        board.say(saved=-1)
        for number in range(PER_RUN):
            process = fork.Process(target=child, args=(folder, seed, steps, board))
            process.start()
            phase = kill_at_random(process, board, KINDS[number % 3], rng)
            if phase is None:
                break
            kills += 1
            phases[phase] += 1
            checking = fork.Process(target=check_saved, args=(folder, board))
            checking.start()
            checking.join()
            lost += checking.exitcode != 0
            if kills >= arguments.kills:
                break
        runs += 1
        digest = run_whole(folder, seed)
        same += digest == (reference / "digest").read_text()
        shutil.rmtree(folder)
        print(f"{kills} kills, {same} of {runs} runs the same, {lost} lost", flush=True)
    shutil.rmtree(scratch)
    told = ", ".join(f"{number} while {phase}" for phase, number in phases.items())
    report = (
        f"{kills} kills ({told}) of {runs} runs of {steps} steps: {same} of {runs} "
        f"ended with the same bits as one that was not touched, and {lost} kills lost "
        f"a checkpoint that had been finished. {time.time() - begun:.0f} s.\n"
    )
    print(report)
    if arguments.kills >= 300:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "kills.md").write_text(
            f"`python experiments/kills.py --kills {arguments.kills}`\n\n{report}"
        )
    assert same == runs and lost == 0


def check_saved(folder: Path, board: Board) -> None:
    """Ends with an error if a checkpoint that was finished is not there any more."""
    if not folder.exists():
        raise SystemExit(board.saved >= 0)
    raise SystemExit(last_whole(folder) < board.saved)


if __name__ == "__main__":
    main()
