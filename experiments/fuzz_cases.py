"""Model and estimator files with one hostile field each, for fuzz_fields.py."""

import copy
import functools
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fuzz_files import places, sealed
from safetensors.numpy import save as safetensors_bytes

from natgrad import _container as container


STORED = Path(__file__).parents[1] / "tests" / "references"
SEEDS = {
    "model": sorted((STORED / "models").glob("*.natgrad")),
    "regressor": [STORED / "estimators" / "regressor.natgrad"],
    "classifier": [STORED / "estimators" / "classifier.natgrad"],
    "ordinal": [STORED / "estimators" / "ordinal.natgrad"],
}

ESCAPE = "\x1b[2J\x1b[31mtrust me\x1b[0m"
HUGE = "<U400000000"


def nested(depth: int) -> Any:
    return functools.reduce(lambda inner, _: [inner], range(depth), 0)


VALUES: list[Any] = [None, True, False, -1, 0, 1, 3, 0.5, -0.5, 1e-320, 1e300, 1.7e308]
VALUES += [10**19, -(10**18), "", "a", "nan", "1", "auto", "poisson", "os.system"]
VALUES += [ESCAPE, "\u202egpj.exe", "a\r\n\x00b", "a" * 100_000, HUGE, "|V1000000000"]
VALUES += [[], [0], ["a"], [0.0, 0.0], [-1.0, 1.0], [1e300, 1e300], [None, None]]
VALUES += [[7] * 100_000, [1.0] * 100_000, nested(200), nested(300), {}, {"a": {}}]
VALUES += [{"class": "kernels.RBF"}, {"class": "custom.A"}, {"__reduce__": "os.system"}]
VALUES += [{"dtype": HUGE, "values": ["a", "b", "c"]}, {"dtype": "|O", "values": [{}]}]
VALUES += [{"dtype": "<i8", "values": [0, 1, 10**19]}]

COMMON = [
    ("fitted.feature_names_in_.dtype", HUGE),
    ("fitted.feature_names_in_.dtype", "(100000000,)f8"),
    ("fitted.feature_names_in_.values", [ESCAPE, "age"]),
    ("fitted.feature_names_in_.values", ["age"]),
    ("fitted.message_", ESCAPE),
    ("fitted.message_", "a" * 100_000),
    ("fitted.history_.reason", ESCAPE),
    ("fitted.x_scale_", [0.0, 1.0]),
    ("fitted.x_scale_", [1.0]),
    ("fitted.x_scale_", [1e-300, 1.0]),
    ("fitted.x_mean_", [1e300, 1.0]),
    ("fitted.y_scale_", -1),
    ("fitted.n_features_in_", 3),
    ("fitted.elbo_", "high"),
    ("fitted.noise_", 1.0),
    ("params.kernel", {"class": "kernels.RBF"}),
    ("params.kernel", "matern12"),
    ("params.likelihood", "poisson"),
    ("params.n_inducing", -1),
    ("params.random_state", -1),
    ("params.trust", True),
    ("user", "all of it"),
]
TARGETED: dict[str, list[tuple[str, Any]]] = {
    "model": [],
    "regressor": [
        ("estimator", "GPClassifier"),
        ("fitted.y_scale_", 0),
        ("fitted.y_scale_", None),
        ("fitted.y_scale_", "1"),
        ("fitted.y_scale_", {}),
        ("fitted.y_mean_", [1.0]),
        ("fitted.y_scale_", 3.0),
        ("fitted.classes_", {"dtype": "<i8", "values": [0, 1]}),
        *COMMON,
    ],
    "classifier": [
        ("estimator", "GPRegressor"),
        ("fitted.classes_.dtype", HUGE),
        ("fitted.classes_.dtype", "<U2"),
        ("fitted.classes_.values", ["high"]),
        ("fitted.classes_.values", ["high", "low"]),
        ("fitted.classes_.values", ["high", "high", "low"]),
        ("fitted.classes_.values", ["middle", "low", "high"]),
        ("fitted.classes_.values", ["a", "b", ESCAPE][::-1]),
        ("fitted.y_scale_", 2.0),
        ("fitted.classes_", {"dtype": "<U9", "values": [1, 2, 3]}),
        *COMMON,
    ],
    "ordinal": [
        ("estimator", "GPRegressor"),
        ("fitted.classes_.dtype", "|i1"),
        ("fitted.classes_.values", [1, 2, 300_000_000_000]),
        ("fitted.classes_", {"dtype": "|i1", "values": [1, 2, 300]}),
        ("fitted.classes_", {"dtype": "<f2", "values": [0.1, 0.2, 0.3]}),
        ("fitted.classes_.values", [1, 2]),
        ("fitted.classes_.values", [1, 2, 2]),
        ("fitted.classes_.values", [True, 2, 3]),
        ("fitted.y_mean_", 1.0),
        ("fitted.classes_", {"dtype": "<M8[s]", "values": [1, 2, 3]}),
        *COMMON,
    ],
}


class Case(NamedTuple):
    """A hostile file, and what was done to it."""

    name: str
    data: bytes


def written(name: str, document: Any, arrays: dict[str, np.ndarray]) -> Case:
    return Case(name, sealed(json.dumps(document).encode(), safetensors_bytes(arrays)))


def cases(kind: str, number: int, seed: int = 0) -> Iterator[Case]:
    """Hostile files of a kind: those made by hand first, then every field in turn."""
    made = [*by_hand(kind), *exchanged(kind)]
    yield from made[:number]
    rng = random.Random(seed)
    rounds = [in_turn(rng, path) for path in SEEDS[kind]]
    for i in range(number - len(made)):
        yield next(rounds[i % len(rounds)])


def in_turn(rng: random.Random, path: Path) -> Iterator[Case]:
    """Each field and each array of a file with a change, again and again."""
    document, arrays = unpacked(path)
    count = len(places(document))
    order = rng.sample(range(count + len(arrays)), count + len(arrays))
    for place in itertools.cycle(order):
        copied = copy.deepcopy(document)
        if place < count:
            name = changed(rng, *places(copied)[place])
            yield written(name, copied, arrays)
        else:
            yield array_changed(rng, copied, dict(arrays), place - count)


def unpacked(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """What is in a file, with one record of training: the others are like it."""
    document, arrays = container.unpack(path.read_bytes())
    if "fitted" in document["metadata"]:
        history = document["metadata"]["fitted"]["history_"]
        history["records"] = history["records"][-1:]
    return document, arrays


def by_hand(kind: str) -> Iterator[Case]:
    document, arrays = unpacked(SEEDS[kind][0])
    for place, value in TARGETED[kind]:
        copied = copy.deepcopy(document)
        node, (*outer, last) = copied["metadata"], place.split(".")
        for key in outer:
            node = node[key]
        node[last] = value
        yield written(f"{place} = {container.shown(value)}", copied, arrays)


def exchanged(kind: str) -> Iterator[Case]:
    """The fields of one kind with the model of each other."""
    document, _ = unpacked(SEEDS[kind][0])
    for other in sorted(SEEDS.keys() - {kind}):
        model, arrays = unpacked(SEEDS[other][0])
        mixed = document | {"model": model["model"]}
        yield written(f"the model of {other}", mixed, arrays)


def changed(rng: random.Random, node: Any, key: Any) -> str:
    """Changes one field, and says how."""
    match rng.randrange(8):
        case 0:
            del node[key]
            return f"no {key}"
        case 1 if isinstance(node, dict):
            node[f"{key}{rng.choice('_2 ')}"] = node.pop(key)
            return f"{key} renamed"
        case 2 if isinstance(node, dict):
            node[rng.choice(["trust", "__class__", ESCAPE])] = True
            return f"a field next to {key}"
    node[key] = value = copy.deepcopy(rng.choice(VALUES))
    return f"{key} = {container.shown(value)}"


def array_changed(
    rng: random.Random, document: Any, arrays: dict[str, np.ndarray], place: int
) -> Case:
    """Another array in the place of one, with the JSON made to agree."""
    name = sorted(arrays)[place]
    array = np.array(arrays[name])
    worst = [np.nan, np.inf, -1e300, 1e300, 0.0, -1.0, 1e-320, 800.0]
    changes: list[Callable[[], Any]] = [
        lambda: np.where(np.arange(array.size).reshape(array.shape) == 0, bad, array),
        lambda: np.full_like(array, bad),
        lambda: array.astype(rng.choice(["f4", "i8", "?"])),
        lambda: array[..., None],
        lambda: array[:-1] if array.ndim else array.reshape(1),
        lambda: np.zeros((0, 2**40)),
        lambda: 1e10 * array,
    ]
    bad, which = rng.choice(worst), rng.randrange(len(changes))
    arrays[name] = other = np.ascontiguousarray(changes[which]()).reshape(
        np.shape(changes[which]())
    )
    node: Any = document
    for key in name.split("."):
        node = node[int(key) if isinstance(node, list) else key]
    node |= {"dtype": other.dtype.name, "shape": list(other.shape)}
    return written(f"{name}: change {which}, {bad}", document, arrays)
