"""Options that several commands share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from natgrad._cli import common


DATA = click.Path(path_type=str)
FOLDER = click.Path(path_type=Path, file_okay=False)


def with_debug(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option that shows the traceback of an error."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def inner(*args: Any, debug: bool, **options: Any) -> Any:
        common.show_warnings_in_lines(debug)
        return function(*args, **options)

    return inner


json_option = click.option(
    "--json", "is_json", is_flag=True, help="Print the result as JSON."
)

progress_option = click.option(
    "--progress/--no-progress", default=True, help="Show or hide the progress bar."
)


class InOrder(click.Group):
    """Commands in the order they are written in: that of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
