"""Pairs of processes that start at the same time with one empty compilation cache.

    python experiments/cache_pairs.py [--pairs 50]   # writes results/cache_pairs.md

Both fit the same table and print their probabilities. In every fifth pair one is killed
at a random moment, and a third process takes its place. In every tenth pair an entry is
then damaged, and one more process fits. All results of a pair must be the same to the
last bit, and in the end every entry must have the checksum in its name.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from natgrad._runtime import compilation_cache


RESULTS = Path(__file__).parent / "results" / "cache_pairs.md"
FIT = """
import numpy as np
from natgrad.sklearn import GPClassifier
x = np.random.default_rng(0).normal(size=(40, 2))
y = x[:, 0] + x[::-1, 1] > 0
model = GPClassifier(verbose=False).fit(x, y)
print(model.predict_proba(x).tobytes().hex())
"""


def start(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"NATGRAD_COMPILATION_CACHE": str(folder)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "error", "-c", FIT]
    return subprocess.Popen(command, env=environment, stdout=pipe, text=True)


def answer(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    return said if process.returncode == 0 else f"exit code {process.returncode}"


def entries(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if not each.is_dir())


def is_whole(entry: Path) -> bool:
    _, digest = compilation_cache._parts(entry)
    return compilation_cache._digest(entry.read_bytes()) == digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=50)
    pairs = parser.parse_args().pairs
    draw = random.Random(0)
    count = dict.fromkeys(("processes", "killed", "damaged", "different", "broken"), 0)
    expected = None
    for pair in range(pairs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o700)
            first, second = start(folder), start(folder)
            answers = []
            if pair % 5 == 4:
                time.sleep(draw.uniform(1, 8))
                second.kill()
                second.communicate()
                count["killed"] += 1
                answers = [answer(first), answer(start(folder))]
            else:
                answers = [answer(first), answer(second)]
            if pair % 10 == 9:
                entry = draw.choice(entries(folder))
                content = bytearray(entry.read_bytes())
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
                entry.write_bytes(content)
                count["damaged"] += 1
                answers.append(answer(start(folder)))
            expected = answers[0] if expected is None else expected
            count["processes"] += len(answers)
            count["different"] += sum(each != expected for each in answers)
            count["broken"] += sum(not is_whole(each) for each in entries(folder))
        print(pair, count, flush=True)
    found = [f"{value} {name}" for name, value in count.items()]
    RESULTS.write_text(f"`python experiments/cache_pairs.py`: {', '.join(found)}.\n")


if __name__ == "__main__":
    main()
