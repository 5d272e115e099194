"""Options that several commands share."""

import os
from importlib import util
from pathlib import Path
from typing import Any

import click

from natgrad._cli import common


DATA = click.Path(path_type=str)
FOLDER = click.Path(path_type=Path, file_okay=False)


EXTRAS = {
    "sklearn": ("scikit-learn", "sklearn"),
    "parquet": ("pyarrow", "pyarrow"),
    "plot": ("matplotlib", "matplotlib"),
    "onnx": ("onnx", "onnx"),
    "stablehlo": ("flatbuffers", "flatbuffers"),
    "numpyro": ("numpyro", "numpyro"),
    "ray": ("ray", "ray"),
}
"""What each extra of natgrad brings: a package, and the module that is in it."""


def require(*data: str | None, extras: tuple[str, ...] = ("sklearn",)) -> None:
    """Raises if a command needs a package that is not installed.

    Parquet files among the data need one. It is found out before anything is imported.
    """
    wanted = [*extras, *(["parquet"] if any(map(_is_parquet, data)) else [])]
    for extra in wanted:
        package, module = EXTRAS[extra]
        if util.find_spec(module) is None:
            what = "Parquet files need" if extra == "parquet" else "this command needs"
            raise click.ClickException(
                f'{what} {package}: pip install "natgrad[{extra}]"'
            )


def _is_parquet(data: str | None) -> bool:
    """Whether data are a file of Parquet, or many: a folder, pattern or address."""
    if data is None or data == "-" or Path(data).suffix.lower() in (".csv", ".tsv"):
        return False
    if Path(data).suffix.lower() == ".parquet" or os.path.isdir(data):
        return True
    return "://" in data or any(character in data for character in "*?[")


json_option = click.option(
    "--json", "is_json", is_flag=True, help="Print the result as JSON."
)

progress_option = click.option(
    "--progress/--no-progress", default=True, help="Show or hide the progress bar."
)


class DebugCommand(click.Command):
    """A command with the option that shows the traceback of an error."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        text = "Show the traceback of an error."
        self.params.append(click.Option(["--debug"], is_flag=True, help=text))

    def invoke(self, ctx: click.Context) -> Any:
        common.show_warnings_in_lines(ctx.params.pop("debug"))
        return super().invoke(ctx)


class InOrder(click.Group):
    """Commands in the order they are written in: that of their use."""

    command_class = DebugCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
