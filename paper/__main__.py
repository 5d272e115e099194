"""The command: `python -m paper NAME`, from a clone of the repository."""

import sys
import traceback
from pathlib import Path

import click

import paper
from natgrad.errors import NatgradError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(paper.NAMES), metavar="NAME")
@click.option("--quick", "is_quick", is_flag=True, help="A small form, in a minute.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="results",
    show_default=True,
    help="The folder for results and pictures.",
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
def command(name: str, is_quick: bool, out: Path, debug: bool) -> int:
    """Run an experiment of the paper and draw its figure.

    NAME is fig1 to fig7; text, for statements of the paper without a figure; readings,
    for choices the paper leaves open; claims, which compares the paper's claims with
    the results; or all. Finished runs are kept in the folder: after Ctrl-C, the same
    command continues.
    """
    try:
        paper.check_packages()
        import matplotlib

        matplotlib.use("agg")
        written = paper.reproduce(name, out, is_quick)
    except (NatgradError, ImportError, OSError) as error:
        if debug:
            traceback.print_exc()
        click.echo(f"error: {error}", err=True)
        return 1
    except KeyboardInterrupt:
        click.echo(f"all finished runs are in {out}; rerun to continue", err=True)
        click.echo("interrupted", err=True)
        return 130
    click.echo(f"{out} has {', '.join(path.name for path in written)}", err=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(command.main(prog_name="python -m paper", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
