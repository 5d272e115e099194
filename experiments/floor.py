"""How long a guarded step should at least be while hyperparameters move: on mnist.

    export NATGRAD_DATA=folder-of-tables
    python experiments/floor.py --floors 0.02   # writes results/floor.csv

The setting is that of figure 7 of the paper, `natgrad reproduce fig7`.
"""

import argparse
from pathlib import Path

import jax
import pandas

from natgrad import guarded
from natgrad.reproduce import stochastic
from natgrad.reproduce.stochastic import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    out = Path(__file__).parent / "results" / "floor.csv"
    parser.add_argument("--floors", type=float, nargs="+", default=[0.02])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=out)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    told = Run(
        *("fig7", "mnist", "robust-max", 0, "guarded", args.steps),
        rate=0.01,
        rows=1024,
        checks=18,
    )
    tables = []
    for floor in args.floors:
        guarded.FLOOR = floor
        table = pandas.DataFrame(stochastic.run(told.config()))
        tables.append(table.assign(floor=floor))
        print(tables[-1].to_string(), flush=True)
    pandas.concat(tables).to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
