"""Text from a file or a table, safe to print."""

import contextlib
import unicodedata
from collections.abc import Iterator


def printable(text: str) -> str:
    """The text with every character that is not visible written as an escape.

    A terminal obeys escape sequences, and marks of direction reorder what is read. So
    a name out of a file may hide a line, or look like another one.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    # Spaces of all widths are harmless, and some languages write them in numbers.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


def printable_lines(text: str) -> str:
    """As `printable`, with line breaks kept."""
    return "\n".join(map(printable, text.split("\n")))


def brief(error: object, most: int = 400) -> str:
    """What an error says on one line, though it may quote all of a file."""
    text = printable(str(error))
    return text if len(text) <= most else f"{text[:most]} ..."


@contextlib.contextmanager
def printable_errors() -> Iterator[None]:
    """Makes the message of any ValueError raised inside safe to print."""
    try:
        yield
    except ValueError as error:
        safe = printable_lines(str(error))
        if safe == str(error):
            raise
        raise type(error)(safe) from None
