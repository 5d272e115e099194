"""What the average over the last steps of `gp.fit` on batches gains, on the way.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/averages.py

The models are those of optimisers.py, on other splits. A line of results/averages.csv
is the log density of held-out rows after some steps: that of the average, and that of
the step itself. A run that is there is not made again; results/averages.md sums up.
"""

from pathlib import Path

import decay
import jax
import numpy as np
import optimisers
import tables


RESULTS = Path(__file__).parent / "results" / "averages.csv"
FIELDS = ("set", "split", "step", "average", "last_step")
STEPS = (200, 400, 800, 1250, 2500)
"""The rate is constant up to 833."""


def curve(rows: dict, is_averaged: bool) -> dict[int, float]:
    """The log density of held-out rows by the number of steps."""
    return dict(decay.curve(rows, STEPS[-1], "square", is_averaged))


def summary(rows: list[dict[str, str]]) -> str:
    """The ranges over sets and splits of what the average gains."""
    lines = []
    for step in STEPS:
        gains = [
            float(row["average"]) - float(row["last_step"])
            for row in rows
            if int(row["step"]) == step
        ]
        lines.append(
            f"after {step} steps the average scores {min(gains):+.4f} to "
            f"{max(gains):+.4f} nats per row more than the step, "
            f"{np.median(gains):+.4f} in the median"
        )
    return "".join(f"- {line}\n" for line in lines)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    done = {(row["set"], int(row["split"])) for row in tables.read(RESULTS)}
    for name in decay.SETS:
        splits = [split for split in decay.SPLITS if (name, split) not in done]
        for optimisers.SPLIT in splits:
            rows = optimisers.rows_of(name)
            average, last = curve(rows, True), curve(rows, False)
            for step in STEPS:
                scores = (f"{average[step]:.4f}", f"{last[step]:.4f}")
                values = (name, optimisers.SPLIT, step, *scores)
                tables.append(dict(zip(FIELDS, values, strict=True)), FIELDS, RESULTS)
                print(*values, flush=True)
    RESULTS.with_suffix(".md").write_text(summary(tables.read(RESULTS)))


if __name__ == "__main__":
    main()
