"""What a value must be: the type and the rule that an annotation says."""

import collections.abc
import math
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from natgrad.errors import InputError


class Rule(NamedTuple):
    """What a value must be besides its type, for `Annotated`."""

    accepts: Callable[[Any], bool]
    wanted: str


Count = Annotated[int, Rule(lambda n: n >= 0, "a whole number, 0 or more")]
Span = Annotated[float, Rule(lambda n: n >= 0, "a number, 0 or more")]
Positive = Annotated[float, Rule(lambda n: n > 0, "a number above 0")]
MaybeNaN = Annotated[float, "null in a file if it is not finite"]
LIMIT = Rule(
    lambda limit: limit == "auto" if isinstance(limit, str) else limit > 0,
    '"auto" or a whole number above 0',
)
SEED = Rule(lambda seed: 0 <= seed < 2**32, "a whole number from 0 to 2^32 - 1")


def require(name: str, value: object, hint: Any) -> None:
    """Raises an InputError unless a value is what an annotation says."""
    if not fits(value, hint):
        raise InputError(f"{name} is {value!r}; it should be {words(hint)}")


def alternatives(hint: Any) -> list[Any]:
    """The types of a union, without the rules that are annotated."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return alternatives(inner[0])
    if origin in (typing.Union, types.UnionType):
        return [kind for part in inner for kind in alternatives(part)]
    return [hint]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as far as that can be known."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        rules = [rule for rule in inner[1:] if isinstance(rule, Rule)]
        return fits(value, inner[0]) and all(rule.accepts(value) for rule in rules)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in inner)
    if origin is tuple and inner[1:] == (...,):
        return type(value) is tuple and all(fits(part, inner[0]) for part in value)
    if origin is dict:
        return type(value) is dict and all(fits(v, inner[1]) for v in value.values())
    if origin is collections.abc.Callable:
        return False
    if hint is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if hint in (bool, int, str):
        return type(value) is hint
    try:  # a class of modules, or a kind of array with a number of axes
        return isinstance(value, hint)
    except TypeError:  # no class, or one that does not tell, as Any
        return True


_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}
_WORDS |= {str: "a text", type(None): "null"}


def words(hint: Any) -> str:
    """A type in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return inner[1].wanted if isinstance(inner[1], Rule) else words(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(words, inner))
    if origin is tuple:
        return f"a list, each {words(inner[0])}"
    return _WORDS.get(hint) or f"a {getattr(hint, '__name__', hint)}"
