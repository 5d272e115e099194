"""Kills `natgrad train --force` with -9 at random moments, over an old model.

    python experiments/replacements.py --kills 100            # results/replacements.md
    python experiments/replacements.py --kills 1              # as the tests do

A folder has an old model. The command that replaces it is killed, in turns, at any
moment of a run and when the new model is being saved and put in its place. After each
kill the folder must have a whole model that loads: the old one, byte for byte, or the
new one with the very numbers of a run that was not killed. Then the same command is
given again. It must end with that new model, and leave nothing else in the folder.
"""

import argparse
import collections
import contextlib
import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np

from natgrad import _container as container
from natgrad._cli import folder as folders, main, models
from natgrad.train._listeners import Saver


RESULTS = Path(__file__).parent / "results"
KINDS = ("any moment", "saving")
FILES = {folders.MODEL, folders.RUN, folders.HISTORY}
SHORT = "--num-inducing 5 --batch-size 16"

# A fork of this process has all imported, and nothing of JAX started.
FORK = multiprocessing.get_context("fork")


def table(path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 80)
    y = np.sin(x) + 0.1 * rng.normal(size=80)
    rows = [f"{a:.4f},{b:.4f}" for a, b in zip(x, y, strict=True)]
    path.write_text("\n".join(["x,y", *rows]))


def command(arguments: str) -> None:
    """The command, which saves a checkpoint several times a second."""
    begin = Saver.__init__
    Saver.__init__ = lambda self, checkpoint, _, config: begin(
        self, checkpoint, 0.2, config
    )
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        contextlib.redirect_stdout(nowhere),
    ):
        main(arguments.split())


def started(target, *arguments):
    process = FORK.Process(target=target, args=arguments)
    process.start()
    return process


def ended(target, *arguments) -> int | None:
    process = started(target, *arguments)
    process.join()
    return process.exitcode


def load(out: Path) -> None:
    models.open_model(out)


def digest(path: Path) -> str:
    """The SHA-256 of all numbers of a model, which do not depend on the clock."""
    document, arrays = container.read(path)
    fitted = document["metadata"]["fitted"]
    parts = [repr((fitted["elbo_"], fitted["n_iter_"])).encode()]
    parts += [name.encode() + arrays[name].tobytes() for name in sorted(arrays)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def kill_at_random(process, out: Path, kind: str, seconds: float, rng) -> str | None:
    """Kills a process and says what it did; None if it had ended before."""
    place, finished = out / folders.REPLACEMENT, out / folders.FINISHED
    if kind == "any moment":
        process.join(rng.uniform(0, seconds))
    else:
        draft = place / f".{folders.MODEL}.tmp"
        while process.is_alive() and not draft.exists() and not finished.exists():
            time.sleep(0.0002)
        time.sleep(rng.uniform(0, 0.005))
    if not process.is_alive():
        process.join()
        return None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    if finished.exists():
        return "replacing"
    if (place / folders.MODEL).exists():
        return "saved"
    return "training" if place.exists() else "outside of the run"


def run() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300, help="of the new model")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, begun = random.Random(arguments.seed), time.time()
    warnings.filterwarnings("ignore", message=".*fork.*")
    scratch = Path(tempfile.mkdtemp())
    # Processes share what is compiled, so that each is at work soon.
    jax.config.update("jax_compilation_cache_dir", str(scratch / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    table(scratch / "table.csv")
    train = f"train {scratch}/table.csv --target y {SHORT} --steps {arguments.steps}"
    old, new = scratch / "old", scratch / "new"
    assert ended(command, f"{train} --seed 1 --out {old}") == 0
    start = time.monotonic()  # all is compiled now
    assert ended(command, f"{train} --out {new}") == 0
    seconds = time.monotonic() - start
    before, after = (old / folders.MODEL).read_bytes(), digest(new / folders.MODEL)
    assert digest(old / folders.MODEL) != after
    print(f"a run takes {seconds:.1f} s", flush=True)

    kills, tries, counts = 0, 0, collections.Counter()
    while kills < arguments.kills:
        out = scratch / f"run-{tries}"
        shutil.copytree(old, out)
        force = f"{train} --out {out} --force"
        kind = KINDS[tries % 2]
        tries += 1
        phase = kill_at_random(started(command, force), out, kind, seconds, rng)
        if phase is not None:
            kills += 1
            counts[phase] += 1
            found = out / folders.MODEL
            is_old = found.is_file() and found.read_bytes() == before
            is_new = not is_old and found.is_file() and digest(found) == after
            is_whole = (is_old or is_new) and ended(load, out) == 0
            counts["old"] += is_old
            counts["new"] += is_new
            counts["broken"] += not is_whole
            is_ended = ended(command, force) == 0 and digest(found) == after
            counts["ended"] += is_ended
            counts["tidy"] += {path.name for path in out.iterdir()} == FILES
        shutil.rmtree(out)
        print(kills, dict(counts), flush=True)
    shutil.rmtree(scratch)
    phases = ("outside of the run", "training", "saved", "replacing")
    told = ", ".join(f"{counts[phase]} {phase}" for phase in phases)
    report = (
        f"{kills} kills ({told}) of runs of {arguments.steps} steps that take "
        f"{seconds:.1f} s: after {counts['old']} of them the folder had the old model, "
        f"after {counts['new']} the new one, and after {counts['broken']} a broken one "
        f"or none. Given again, the command ended with the new model {counts['ended']} "
        f"times of {kills}, and left nothing else in the folder {counts['tidy']} times "
        f"of {kills}. {time.time() - begun:.0f} s.\n"
    )
    print(report)
    if kills >= 20:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "replacements.md").write_text(
            f"`python experiments/replacements.py --kills {kills}`\n\n{report}"
        )
    assert counts["broken"] == 0 and counts["ended"] == counts["tidy"] == kills


if __name__ == "__main__":
    run()
