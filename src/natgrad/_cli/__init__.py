"""The command `natgrad`: arguments to calls.

What a command needs is imported when it runs, so that help is there at once.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from natgrad import distributed
from natgrad._cli import common
from natgrad._cli.options import (
    DATA,
    FOLDER,
    InOrder,
    json_option,
    progress_option,
    require,
)
from natgrad._config import NULLS, NUMBERS
from natgrad._registry import COLUMNS, KERNELS, LIKELIHOODS
from natgrad.errors import Terminated


@click.group(
    cls=InOrder,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(package_name="natgrad", message="natgrad %(version)s")
def cli() -> None:
    """Fit Gaussian processes to tables with natural gradients.

    \b
      natgrad train houses.csv --target price --out model
      natgrad evaluate model others.csv
      natgrad predict model new.csv --out predictions.csv
    """


@cli.command()
@click.argument("table", metavar="[DATA]", type=DATA, required=False)
@click.option("--data", type=DATA, help="Same as DATA.")
@click.option("--target", help="Column to predict.")
@click.option(
    "--out",
    type=FOLDER,
    default="model",
    show_default=True,
    help="Folder for the model.",
)
@click.option(
    "--inputs", metavar="A,B,...", help="Columns to predict from.  [all others]"
)
@click.option(
    "--columns",
    metavar="NAME=COLUMN,...",
    help=f"Columns that come with the target: {', '.join(COLUMNS)}.  [none]",
)
@click.option(
    "--likelihood",
    type=click.Choice(("auto", *LIKELIHOODS)),
    metavar="NAME",
    help=f"Distribution of the target: auto, {', '.join(LIKELIHOODS)}.  [auto]",
)
@click.option(
    "--nulls",
    type=click.Choice(NULLS),
    help="Raise an error at a null, drop its row, fill in the mean, or also add an "
    "indicator column.  [indicator]",
)
@click.option(
    "--date-periods",
    metavar="P,...",
    help="Add a sine and a cosine of dates: day, week, year.  [none]",
)
@click.option("--minutes", type=float, help="Stop after this many minutes.")
@click.option("--steps", metavar="N", help="Stop after this many steps.  [auto]")
@click.option("--num-inducing", metavar="M", help="Number of inducing inputs.  [auto]")
@click.option(
    "--kernel",
    metavar="NAME",
    help=f"Kernel: auto, or from rough to smooth {', '.join(KERNELS)}.  [auto]",
)
@click.option("--batch-size", metavar="N", help="Rows per step.  [auto]")
@click.option("--seed", type=int, help="Random seed.  [0]")
@click.option(
    "--config", type=DATA, help="Read settings from a run.toml; options override them."
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace the model in the folder once the new one is complete.",
)
@click.option(
    "--resume",
    "is_resumed",
    is_flag=True,
    help="Continue the run in the folder if there is one.",
)
@progress_option
@json_option
def train(
    table: str | None,
    data: str | None,
    out: Path,
    config: str | None,
    force: bool,
    is_resumed: bool,
    progress: bool,
    is_json: bool,
    **given: Any,
) -> int:
    """Train a model on a table.

    DATA is a .parquet or .csv file, the name of a known data set, or many Parquet
    files: a folder or a pattern such as 'data/*.parquet'. natgrad reads many files
    as it needs them. Columns of strings become categories, dates
    become days since the first.

    natgrad writes model.natgrad, history.jsonl and run.toml (all settings, for
    --config) to the folder. Press Ctrl-C to stop early and keep the model so far;
    `natgrad resume` continues it.

    Under Slurm, or if you set NATGRAD_NUM_PROCESSES, all processes train one model.
    """
    data = table if data is None else data
    if force and is_resumed:
        raise click.UsageError(
            "--force starts a new run and --resume continues one: give only one of them"
        )
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("inputs", "columns", "date_periods"):
        if name in given:
            parts = given[name].split(",")
            given[name] = tuple(part.strip() for part in parts if part.strip())
    for name in NUMBERS:
        if given.get(name, "auto") == "auto":
            continue
        try:
            given[name] = int(given[name])
        except ValueError:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is {given[name]!r}; it should be a "
                "number, or auto"
            ) from None
    if data is not None:
        given |= {"data": data, "sha256": None}
    if config is None and "data" not in given:
        raise click.UsageError("DATA is missing; or give --config run.toml")
    if config is None and "target" not in given:
        raise click.UsageError(
            "--target is missing: which column should natgrad predict?"
        )

    require(data)
    from natgrad._config import Run, read

    run = Run(**given) if config is None else read(config, **given)

    from natgrad._cli.training import train

    return train(run, out, force, is_resumed, is_json, progress)


@cli.command()
@click.argument("folder", type=FOLDER)
@progress_option
@json_option
def resume(folder: Path, progress: bool, is_json: bool) -> int:
    """Continue an interrupted training run.

    FOLDER is the --out of that run. The result is bit-identical to that of a run
    without interruption, unless you set a limit with --minutes.
    """
    require()
    from natgrad._cli.training import resume

    return resume(folder, is_json, progress)


@cli.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option(
    "--out",
    type=DATA,
    required=True,
    help="A .parquet or .csv file, or - for stdout; a folder for many files.",
)
@click.option(
    "--quantiles",
    default="0.05,0.5,0.95",
    show_default=True,
    help="Quantile levels between 0 and 1, for regression.",
)
@click.option(
    "--keep", default="", metavar="A,B,...|all", help="Columns of DATA to copy."
)
@json_option
def predict(
    model: str, data: str, out: str, quantiles: str, keep: str, is_json: bool
) -> None:
    """Predict the rows of a table or of many Parquet files.

    A regressor writes the mean, the standard deviation and quantiles of the target; a
    classifier writes the class and the probability of each class. DATA is a file, or
    many Parquet files: a folder, an address, or a pattern such as 'data/*.parquet'.
    natgrad predicts many files in parts and divides the parts among processes. If
    it is killed, run the same command again: it keeps the parts that are complete.
    """
    try:
        levels = [float(level) for level in quantiles.split(",") if level.strip()]
        if not all(0 < level < 1 for level in levels):
            raise ValueError
    except ValueError:
        raise click.UsageError(
            f"--quantiles is {quantiles!r}; it should be numbers between 0 and 1, as "
            "0.05,0.95"
        ) from None

    require(data, out)
    from natgrad._cli.predicting import predict

    predict(model, data, out, levels, keep, is_json)


@cli.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option("--out", type=FOLDER, required=True, help="Folder for the new model.")
@click.option(
    "--rows-per-piece",
    "rows",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Rows to learn from at a time.",
)
@click.option("--force", is_flag=True, help="Replace the model in the folder.")
@json_option
def update(
    model: str, data: str, out: Path, rows: int, force: bool, is_json: bool
) -> None:
    """Update a model with new rows, in one pass over them.

    DATA is a file, or many Parquet files, which need not fit in memory. If natgrad is
    killed, run the same command again: the result is bit-identical.
    """
    require(data)
    from natgrad._cli.updating import update

    update(model, data, out, rows, force, is_json)


@cli.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@json_option
def evaluate(model: str, data: str, is_json: bool) -> None:
    """Score predictions against the targets of a table.

    Give rows that the model was not trained on.
    """
    require(data)
    from natgrad._cli.evaluating import evaluate

    evaluate(model, data, is_json)


@cli.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option("--out", type=DATA, required=True, help="A folder or a .png file.")
def plot(model: str, data: str, out: str) -> None:
    """Plot the training run and the predictions for a table."""
    require(data, extras=("sklearn", "plot"))
    from natgrad._cli.evaluating import plot

    plot(model, data, out)


@cli.command()
@click.argument("model", type=DATA)
@click.argument("data", type=DATA)
@click.option("--out", type=DATA, required=True, help="An .html file.")
def report(model: str, data: str, out: str) -> None:
    """Write an HTML report: metrics, plots and settings."""
    require(data, extras=("sklearn", "plot"))
    from natgrad._cli.evaluating import report

    report(model, data, out)


@cli.command()
@click.argument("model", type=DATA)
@json_option
def info(model: str, is_json: bool) -> None:
    """Print a summary of a model."""
    require()
    from natgrad._cli.evaluating import info

    info(model, is_json)


@cli.command()
@click.argument("name", required=False)
@click.option("--fetch", is_flag=True, help="Download it if it is missing.")
@json_option
def datasets(name: str | None, fetch: bool, is_json: bool) -> None:
    """List, locate or download known data sets.

    natgrad stores them in the folder NATGRAD_DATA, by default a cache folder. It
    downloads them from UCI, OpenML or Keras.
    """
    if fetch and name is None:
        raise click.UsageError("NAME is missing: which data set should natgrad fetch?")

    from natgrad._cli import data

    if fetch and name is not None:
        data.fetch(name)
    data.show(name, is_json)


@cli.command()
@click.argument("data", type=DATA, metavar="IN")
@click.argument("out", type=FOLDER)
@click.option(
    "--rows-per-group",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="Rows per row group.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed.")
@click.option("--force", is_flag=True, help="Replace the table in the folder.")
@json_option
def shuffle(
    data: str, out: Path, rows_per_group: int, seed: int, force: bool, is_json: bool
) -> None:
    """Shuffle the rows of Parquet files.

    IN is a file, a folder or a quoted pattern; it need not fit in memory. OUT is a
    folder, which appears once it is complete. natgrad trains on a few row groups at a
    time if a table is too large for memory, so each row group should be a random
    sample of all rows.
    """
    require(extras=("parquet",))
    from natgrad._cli.data import shuffle

    shuffle(data, out, rows_per_group, seed, force, is_json)


@cli.command()
@json_option
def doctor(is_json: bool) -> int:
    """Print installed versions and run a short self-test."""
    from natgrad._cli import environment

    found = environment.examine()
    common.print_result(found, is_json, environment.as_text(found))
    return 0 if found["self_test"]["passed"] else 1


def main(args: Sequence[str] | None = None) -> None:
    """Runs the command and ends the process, with code 0 if all went well.

    It is 1 after an error, 2 for wrong arguments, 130 after Ctrl-C, 143 after SIGTERM;
    among several processes 17 if another was lost, 18 if this one was stuck.
    """
    is_debug = "--debug" in (sys.argv if args is None else args)
    try:
        code = cli.main(args, prog_name="natgrad", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        common.say("interrupted")
        code = 130
    except Terminated:
        code = distributed.TERMINATED
    except BrokenPipeError:  # its reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = common.reported(error, is_debug)
    if code:
        distributed.leave(code)
    sys.exit(code or 0)
