"""What all commands share: how they print, and how they fail."""

import json
import logging
import sys
import threading
import traceback
import warnings
from typing import Any

import click

from natgrad import distributed
from natgrad._text import printable, printable_lines
from natgrad.errors import NatgradError, PeerError


EXPECTED = (NatgradError, OSError, ValueError, ImportError, MemoryError)
"""Errors whose message is for the user; any other is a fault of natgrad's own."""

MOST = 400
"""How many characters of an error are shown."""

NEEDED = ("pyarrow", "sklearn", "matplotlib")
"""Packages that the command line needs besides natgrad: its extra has them all."""


_IS_SILENT: list[bool] = []


def join() -> bool:
    """Joins the processes of a launcher; whether this is the first.

    Only the first prints and writes files.
    """
    is_first = distributed.initialize().process == 0
    if not is_first:
        _IS_SILENT.append(True)
    return is_first


def say(text: str) -> None:
    """Prints a line on the standard error."""
    if not _IS_SILENT:
        click.echo(text, err=True)


def print_result(values: dict[str, Any], is_json: bool, text: str) -> None:
    """Prints the result of a command, as JSON or as text."""
    if not _IS_SILENT:
        click.echo(json.dumps(values, indent=2, allow_nan=False) if is_json else text)


def table(rows: dict[str, Any], indent: int = 0) -> str:
    """Names and values in two columns."""
    width = max(map(len, rows), default=0) + 2
    return "\n".join(
        f"{' ' * indent}{name:<{width}}{printable_lines(str(value))}".rstrip()
        for name, value in rows.items()
    )


def finite(value: Any) -> Any:
    """Numbers as JSON has them, which has no NaN and no infinity."""
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if hasattr(value, "tolist"):  # of NumPy
        return finite(value.tolist())
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def show_warnings_in_lines(is_debug: bool) -> None:
    """Prints each warning for users on one line, and hides what other packages print.

    A library would print the traceback of a thread that fails, though the error itself
    is raised where it is waited for.
    """
    # Columns are found by name before they are a matrix, which has none.
    warnings.filterwarnings("ignore", "X does not have valid feature names")
    if is_debug:
        return

    def show(message: object, category: type[Warning], *_: object) -> None:
        if issubclass(category, UserWarning):
            say(f"warning: {_one_line(str(message))}")

    warnings.showwarning = show
    logging.getLogger("asyncio").disabled = True
    sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *_: None


def reported(error: BaseException, is_debug: bool) -> int:
    """Prints an error in one line, or in full, and returns the exit code."""
    code = distributed.LOST if isinstance(error, PeerError) else 1
    if is_debug:
        traceback.print_exception(error)
        return code
    line = _one_line(str(error)) or type(error).__name__
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and name in NEEDED:
        line = f'{name} is not installed: pip install "natgrad[cli]"'
    elif isinstance(error, MemoryError):
        line = f"there is not enough memory ({line}); use a smaller --num-inducing"
    elif isinstance(error, OSError) and not isinstance(error, NatgradError):
        line = f"{error.filename or 'the output'}: {error.strerror or line}"
    elif not isinstance(error, EXPECTED):
        line = f"{type(error).__name__}: {line}; --debug shows where"
    who = ""
    if distributed.is_started():
        who = "process {} of {}: ".format(*distributed.place())
    click.echo(f"{who}error: {line}", err=True)
    return code


def _one_line(text: str) -> str:
    lines = map(printable, text.splitlines())
    line = " ".join(line.strip() for line in lines if line.strip())
    if len(line) <= MOST:
        return line
    # What to do about it comes last.
    return f"{line[: MOST * 2 // 3]} ... {line[-MOST // 3 :]}"
