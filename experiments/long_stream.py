"""Memory and time per piece over a long stream of pieces.

    python experiments/long_stream.py [--pieces 1000] [--rows 1000] [--inducing 120]

Rows drift through two inputs, so that inducing inputs have to move. The table has one
line for each tenth of the pieces: seconds of CPU and the peak of memory so far.
"""

import argparse
import resource
import time
from pathlib import Path

import jax
import numpy as np

from natgrad import gp


jax.config.update("jax_enable_x64", True)
RESULTS = Path(__file__).parent / "results"


def piece(
    place: int, pieces: int, rows: int, is_test: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([place, is_test])
    x = rng.uniform(-1, 1, (rows, 2)) + 4 * np.array([place / pieces, 0.0])
    return x, np.sin(3 * x[:, 0]) * x[:, 1] + 0.3 * rng.standard_normal(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pieces", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--inducing", type=int, default=120)
    asked = parser.parse_args()
    pieces, rows, inducing = asked.pieces, asked.rows, asked.inducing
    name = option = ""
    if inducing != parser.get_default("inducing"):
        name, option = f"_{inducing}", f" --inducing {inducing}"
    x, y = piece(0, pieces, rows)
    first = gp.initialize(x, gp.likelihoods.Gaussian(0.1), 50)
    first = gp.fit(first, (x, y), progress=False, steps=50).params
    online = gp.online(first, (x, y), num_inducing=inducing)
    lines = [
        f"{pieces:,} pieces of {rows:,} rows, at most {inducing} inducing inputs: "
        f"`python experiments/long_stream.py{option}`\n",
        "| pieces | CPU s of a piece | peak, MB | held-out log density |",
        "|---|---|---|---|",
    ]
    began = time.process_time()
    for place in range(1, pieces + 1):
        online = online.update(piece(place, pieces, rows))
        if place % (pieces // 10) == 0:
            spent = (time.process_time() - began) / (pieces // 10)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            # Rows from all places so far.
            tests = [piece(k, pieces, 100, True) for k in range(0, place, pieces // 20)]
            tests = [np.concatenate(each) for each in zip(*tests, strict=True)]
            score = float(gp.predictor(online.model).log_density(*tests).mean())
            line = f"| {place:,} | {spent:.3f} | {peak:.0f} | {score:.3f} |"
            print(line, flush=True)
            lines.append(line)
            began = time.process_time()
    (RESULTS / f"long_stream{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
