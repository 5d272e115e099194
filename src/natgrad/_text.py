"""Words for messages: lists, numbers of things, and what is safe to print."""

import contextlib
import difflib
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

from natgrad.errors import InputError, NatgradError


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


def shown(value: object) -> str:
    """What a file holds, short and on one line."""
    return brief(ascii(value), 56)


def counted(count: SupportsIndex, noun: str) -> str:
    """1 null, 2 nulls."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Iterable[Any], limit: int = 12) -> str:
    """Names in a row, as many as can be read."""
    names = list(map(str, names))
    more = f" and {len(names) - limit:,} more" if names[limit:] else ""
    return ", ".join(names[:limit]) + more


def nearest(missing: Iterable[str], names: Iterable[Any]) -> list[str]:
    """Names that are spelled much like those that are missing, in capitals or not."""
    known = {str(name).casefold(): str(name) for name in names if str(name).strip()}
    near: dict[str, None] = {}
    for name in missing:
        close = difflib.get_close_matches(str(name).casefold(), known)
        near |= dict.fromkeys(known[each] for each in close)
    return list(near)


def choices(name: str, known: Iterable[str], other: str = "") -> str:
    """All names that are known, and the one that may be meant."""
    near = nearest([name], known := list(known))
    return ", ".join(known) + other + (f"; did you mean {near[0]!r}?" if near else "")


def require_choice(
    name: str, value: Any, known: Iterable[str], other: str = ""
) -> None:
    """Raises an InputError unless a value is one of those that are known.

    `other` says what else it may be.
    """
    if value not in (known := list(known)):
        found = choices(value, known, other)
        raise InputError(f"{name} is {value!r}; it should be one of {found}")


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


@contextlib.contextmanager
def naming(source: object) -> Iterator[None]:
    """Puts the name of a file, or of a part of it, before what is wrong with it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    except Exception as error:
        is_reading = isinstance(error, OSError | UnicodeDecodeError)
        is_arrow = type(error).__module__.startswith("pyarrow")
        if isinstance(error, NatgradError) or not (is_reading or is_arrow):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise InputError(f"{source} is not UTF-8; save it as UTF-8") from error
        lines = (getattr(error, "strerror", None) or str(error)).splitlines()
        why = (lines or ["no reason given"])[0]
        raise InputError(f"{source} cannot be read: {why:.200}") from error
