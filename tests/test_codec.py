"""Records come back from JSON and arrays as they were, and only classes of a list."""

import dataclasses
import math
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from natgrad import _container as container
from natgrad._annotations import MaybeNaN, Rule
from natgrad._codec import Format
from natgrad.errors import CorruptFileError, IncompatibleFileError, InputError


class Pair(NamedTuple):
    left: np.ndarray
    right: Any


@dataclasses.dataclass(frozen=True)
class Square:
    side: Annotated[float, Rule(lambda side: side > 0, "a number above 0")]


@dataclasses.dataclass(frozen=True)
class Disc:
    radius: float
    is_filled: bool = False


@dataclasses.dataclass(frozen=True)
class Drawing:
    shapes: tuple[Square | Disc, ...]
    arrays: dict[str, Pair]
    score: MaybeNaN
    title: str | None = None
    limit: float | None = None

    def __post_init__(self):
        if self.title == "":
            raise ValueError("a title has letters")


FORMAT = Format(
    "tests.Drawing", "a drawing", "drawing", Drawing, {"square": Square, "disc": Disc}
)


def drawing():
    pair = Pair(np.asarray([1.0, np.nan]), jnp.asarray([[2, 3]]))
    return Drawing((Square(2.0), Disc(1.5)), {"a.b": pair}, math.nan)


def test_a_record_comes_back_and_its_defaults_take_no_room(tmp_path):
    FORMAT.write(tmp_path / "file", drawing(), {"by": ["me"]})
    found, metadata = FORMAT.read(tmp_path / "file")
    assert metadata == {"by": ["me"]} and math.isnan(found.score)
    assert (found.shapes, found.title) == (drawing().shapes, None)
    for one, other in zip(found.arrays["a.b"], drawing().arrays["a.b"], strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)
    node = container.read(tmp_path / "file")[0]["drawing"]
    assert node["shapes"][1] == {"class": "disc", "radius": 1.5}
    assert node["title"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": [{"class": "square", "side": -1.0}]},
        {"shapes": [{"class": "disc", "radius": None}]},
        {"shapes": [{"class": "disc", "radius": True}]},
        {"shapes": [{"class": "disc", "radius": 1.0, "is_filled": 1}]},
        {"shapes": [{"class": "disc"}]},
        {"shapes": [{"class": "os.system", "radius": 1.0}]},
        {"shapes": [{"class": "custom.Disc", "radius": 1.0}]},
        {"shapes": [{"radius": 1.0}]},
        {"shapes": [[]]},
        {"shapes": {}},
        {"arrays": {"a.b": {"left": 1.0, "right": 2.0}}},
        {"arrays": {}},
        {"title": ""},
        {"__class__": "os.system"},
    ],
)
def test_what_is_not_of_the_list_or_breaks_a_rule_is_refused(change, tmp_path):
    FORMAT.write(tmp_path / "file", drawing())
    document, arrays = container.read(tmp_path / "file")
    container.write(
        tmp_path / "file", document | {"drawing": document["drawing"] | change}, arrays
    )
    with pytest.raises((CorruptFileError, IncompatibleFileError)):
        FORMAT.read(tmp_path / "file")


def test_a_record_has_all_its_fields(tmp_path):
    for name in ("shapes", "score", "title", "limit"):
        FORMAT.write(tmp_path / "file", drawing())
        document, arrays = container.read(tmp_path / "file")
        del document["drawing"][name]
        container.write(tmp_path / "file", document, arrays)
        with pytest.raises(CorruptFileError, match=f"has no {name}"):
            FORMAT.read(tmp_path / "file")


def test_what_could_not_be_read_is_not_written(tmp_path):
    wrong = dataclasses.replace(drawing(), title=print)
    endless = dataclasses.replace(drawing(), limit=math.inf)  # null would be taken
    for value in (
        wrong,
        endless,
        dataclasses.replace(drawing(), shapes=(Square(-1.0),)),
        1,
    ):
        with pytest.raises(InputError):
            FORMAT.write(tmp_path / "file", value)
    assert not list(tmp_path.iterdir())
