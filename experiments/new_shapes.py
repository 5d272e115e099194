"""Many fits of new shapes in one process, which keeps few of their programs.

    python experiments/new_shapes.py              # 500 fits, about 20 minutes
    python experiments/new_shapes.py --fits 40

Every fit has another number of rows, inputs and inducing inputs, and so is compiled
anew. Linux allows a process 65,530 memory maps. Writes results/new_shapes.md.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from natgrad import gp


RESULTS = Path(__file__).parent / "results"


def memory_maps() -> int:
    """How many memory maps this process has."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fits", type=int, default=500)
    count = parser.parse_args().fits
    rng, maps, begun = np.random.default_rng(0), [], time.monotonic()
    for number in range(count):
        rows, inputs = 300 + 64 * (number % 50), 1 + number // 50
        x = rng.standard_normal((rows, inputs))
        y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(rows)
        model = gp.initialize(x, gp.likelihoods.Gaussian(), 5 + number % 7)
        fitted = gp.fit(model, (x, y), steps=2, progress=False)
        gp.predictor(fitted.params).predict(x[:5])
        assert np.isfinite(fitted.history[-1].objective)
        maps.append(memory_maps())
        if number % 20 == 19:
            seconds = time.monotonic() - begun
            print(number + 1, maps[-1], f"{seconds:.0f} s", flush=True)
    lines = [
        f"`python experiments/new_shapes.py --fits {count}`: {count} fits of new "
        "shapes in one process, all of them finite. Memory maps: "
        f"{maps[0]:,} after the first fit, at most {max(maps):,}, and {maps[-1]:,} "
        "after the last; Linux allows 65,530."
    ]
    (RESULTS / "new_shapes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
