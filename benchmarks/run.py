"""The benchmarks: one command, which makes an environment for each library itself.

    export NATGRAD_DATA=folder-of-parquet-files
    python benchmarks/run.py tables        # every method on every table, for hours
    python benchmarks/run.py optimisers    # quality over time at the same M and batch
    python benchmarks/run.py steps         # the cost of a step, M = 100 to 2,000
    python benchmarks/run.py page          # docs/results/benchmarks.md and its figures

    python benchmarks/run.py tables --sets energy pima --methods natgrad --splits 20

Results are appended to benchmarks/results. A run that is there is not made again, so
you can interrupt the command and start it again. Environments are kept in
~/.cache/natgrad-benchmarks, or in the folder that NATGRAD_BENCHMARKS names.
"""

import argparse
import importlib
import os
import sys

import environments


WORKERS = {"work": "tables", "curve": "optimisers", "step": "steps"}
"""Processes that the parts start, by their first argument."""

PARTS = ("tables", "optimisers", "steps", "page")


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in WORKERS:
        module = importlib.import_module(WORKERS[sys.argv[1]])
        return module.worker(sys.argv[2])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--sets", nargs="+", default=[], help="for steps: sizes")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--splits", nargs="+", type=int, default=[])
    arguments = parser.parse_args()
    python = environments.python_of("natgrad")
    if sys.executable != python:
        os.execv(python, [python, *sys.argv])
    module = importlib.import_module(arguments.part)
    module.main(arguments.sets, arguments.methods, arguments.splits)


if __name__ == "__main__":
    main()
