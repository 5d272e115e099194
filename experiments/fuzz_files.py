"""Whether any damaged or forged model file does anything but be refused.

    python experiments/fuzz_files.py --files 100000

Stored files are changed at random: bits, bytes, pieces cut out, put in and
spliced from another file; and with a hash that is right, so that the reader goes
further: JSON as text, JSON as a tree, the header of the arrays, the arrays. Each is
loaded, and is refused with an error of natgrad's or gives a sound model. Anything else,
or more than a second of computing, is a failure. The table goes to
results/fuzz_files.md.
"""

import argparse
import collections
import copy
import hashlib
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save as safetensors_bytes

from natgrad import _container as container
from natgrad.errors import CorruptFileError, IncompatibleFileError
from natgrad.gp import SparseGP
from natgrad.gp._files import load


jax.config.update("jax_enable_x64", True)

HERE = Path(__file__).parent
SEEDS = sorted((HERE.parent / "tests/references/models").glob("*.natgrad"))
LIMIT = 1.0  # seconds

VALUES: list[Any] = [None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63 - 1, 10**19]
VALUES += [0.0, -0.5, 1e-300, 1e300, "", "a", "os.system", "__class__", "\x00", "ü"]
VALUES += ["../../etc/passwd", "a" * 1000, [], [[]], [0], [-1, 2], [1.5], {}]
VALUES += [{"class": "kernels.RBF"}, {"class": "means.Zero"}, {"class": "custom.A"}]
VALUES += [{"dtype": "float64", "shape": []}, {"dtype": "int8", "shape": [2, 2]}]
VALUES += ["probit", "float32", "F32", "I64", "BOOL", "kernels.Sum", "linalg.Log"]


def parts(data: bytes) -> tuple[bytes, bytes]:
    """The JSON, and the block of arrays."""
    end = 52 + int.from_bytes(data[44:52], "little")
    return data[52:end], data[end:]


def sealed(text: bytes, block: bytes) -> bytes:
    rest = len(text).to_bytes(8, "little") + text + block
    version = container.VERSION.to_bytes(4, "little")
    return container.MAGIC + version + hashlib.sha256(rest).digest() + rest


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut out, put in, or doubled."""
    mutable = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        start = rng.randrange(len(mutable) + 1)
        end = min(len(mutable), start + rng.choice([1, 1, 4, 8, 64]))
        match rng.randrange(6):
            case 0 if start < end:
                mutable[start] ^= 1 << rng.randrange(8)
            case 1:
                mutable[start:end] = rng.randbytes(end - start)
            case 2:
                del mutable[start:end]
            case 3:
                mutable[start:start] = rng.randbytes(end - start)
            case 4:
                mutable[start:start] = mutable[start:end]
            case _:
                mutable[start:end] = bytes(end - start)
    return bytes(mutable)


def flipped(rng: random.Random, data: bytes) -> bytes:
    mutable = bytearray(data)
    mutable[rng.randrange(len(mutable))] ^= 1 << rng.randrange(8)
    return bytes(mutable)


def truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def spliced(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(SEEDS).read_bytes()
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def crossed(rng: random.Random, data: bytes) -> bytes:
    """The JSON of one model, or some of it, and the arrays of another."""
    other = parts(rng.choice(SEEDS).read_bytes())
    text, block = parts(data)
    return sealed(text, other[1]) if rng.random() < 0.5 else sealed(other[0], block)


def text_damaged(rng: random.Random, data: bytes) -> bytes:
    text, block = parts(data)
    return sealed(damaged(rng, text), block)


def block_damaged(rng: random.Random, data: bytes) -> bytes:
    text, block = parts(data)
    return sealed(text, damaged(rng, block))


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree, with each of its keys."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            found += places(node[key])
    return found


def changed(rng: random.Random, tree: Any) -> Any:
    """A tree with a value replaced, removed, renamed, exchanged or put inside."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 2, 4])):
        found = places(tree)
        if not found:
            break
        node, key = rng.choice(found)
        other, other_key = rng.choice(found)
        match rng.randrange(7):
            case 0 | 1:
                node[key] = copy.deepcopy(rng.choice(VALUES))
            case 2:
                del node[key]
            case 3 if isinstance(node, dict):
                node[str(rng.choice(VALUES))] = node.pop(key)
            case 4:
                node[key] = copy.deepcopy(other[other_key])
            case 5 if type(node[key]) in (int, float):
                node[key] += rng.choice([-1, 1, 0.5, 2**16])
            case _:
                node[key] = [node[key]] if rng.random() < 0.5 else {"class": node[key]}
    return tree


def tree_changed(rng: random.Random, data: bytes) -> bytes:
    text, block = parts(data)
    return sealed(json.dumps(changed(rng, json.loads(text))).encode(), block)


def header_changed(rng: random.Random, data: bytes) -> bytes:
    text, block = parts(data)
    end = 8 + int.from_bytes(block[:8], "little")
    header = json.dumps(changed(rng, json.loads(block[8:end]))).encode()
    return sealed(text, len(header).to_bytes(8, "little") + header + block[end:])


def array_changed(rng: random.Random, data: bytes) -> bytes:
    """Other numbers, shapes and types, with the JSON made to agree."""
    document, arrays = container.unpack(data)
    for name in rng.sample(sorted(arrays), rng.choice([1, 1, 2])):
        array = np.array(arrays[name])
        with np.errstate(all="ignore"):
            match rng.randrange(6):
                case 0 if array.size:
                    worst = [np.nan, np.inf, -1e300, 1e300, 0, -1, 1e-320, 800]
                    array.flat[rng.randrange(array.size)] = rng.choice(worst)
                case 1:
                    array = array.astype(rng.choice(["f2", "f4", "f8", "i8", "?"]))
                case 2:
                    array = array.reshape(rng.choice([(-1,), (1, -1), (-1, 1)]))
                case 3:
                    array = array[..., None] if array.ndim == 0 else array[:-1]
                case 4:
                    array = -array * rng.choice([1, 1e10, 1e200])
                case _:
                    array = np.zeros(rng.choice([(), (0,), (3,), (5, 2), (5, 5)]))
        arrays[name] = array = np.asarray(array)
        node: Any = document
        for key in name.split("."):
            node = node[int(key) if isinstance(node, list) else key]
        node |= {"dtype": array.dtype.name, "shape": list(array.shape)}
    return sealed(json.dumps(document).encode(), safetensors_bytes(arrays))


KINDS: dict[str, tuple[int, Callable[[random.Random, bytes], bytes]]] = {
    "one bit": (10, flipped),
    "cut short": (5, truncated),
    "bytes": (10, damaged),
    "spliced from two": (5, spliced),
    "JSON of another, hash right": (2, crossed),
    "JSON as text, hash right": (20, text_damaged),
    "JSON as a tree, hash right": (20, tree_changed),
    "block of arrays, hash right": (13, block_damaged),
    "header of arrays, hash right": (10, header_changed),
    "arrays, JSON and hash right": (5, array_changed),
}


def is_sound(model: SparseGP) -> bool:
    leaves = map(np.asarray, jax.tree.leaves(model))
    return isinstance(model, SparseGP) and all(np.isfinite(x).all() for x in leaves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    seeds = [path.read_bytes() for path in SEEDS]
    for path in SEEDS:  # compiled once
        load(path)
    counts = {name: collections.Counter() for name in KINDS}
    slowest: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    failures, modules, begun = 0, set(sys.modules), time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.natgrad"
        for _ in range(options.files):
            name = rng.choices(names, weights)[0]
            data = KINDS[name][1](rng, rng.choice(seeds))
            path.write_bytes(data)
            start = time.process_time()
            try:
                outcome = "loaded" if is_sound(load(path)) else "FAILED"
                if outcome == "loaded" and data in seeds:
                    outcome = "unchanged"
            except (CorruptFileError, IncompatibleFileError) as error:
                outcome = type(error).__name__
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                outcome = "FAILED"
                traceback.print_exc()
            took = time.process_time() - start
            slowest[name] = max(slowest[name], took)
            outcome = "FAILED" if took > LIMIT else outcome
            counts[name][outcome] += 1
            if outcome == "FAILED":
                failures += 1
                kept = Path(tempfile.gettempdir()) / f"fuzz_failure_{failures}.natgrad"
                kept.write_bytes(data)
                print(f"{name}: {took:.2f} s, kept as {kept}")
    columns = ["CorruptFileError", "IncompatibleFileError", "loaded", "unchanged"]
    columns.append("FAILED")
    lines = [
        f"`python experiments/fuzz_files.py --files {options.files} --seed "
        f"{options.seed}`",
        "",
        "Loaded are files whose change leaves a sound model: another number, another",
        "name of a kernel with the same fields, a file of another model's.",
        "",
        "| changed | files | " + " | ".join(columns) + " | slowest (s of CPU) |",
        "|---|" + "---|" * (len(columns) + 2),
    ]
    total = sum(counts.values(), collections.Counter())
    rows = [*counts.items(), ("all", total)]
    slowest["all"] = max(slowest.values())
    for name, row in rows:
        cells = [row.total(), *(row[column] for column in columns)]
        numbers = " | ".join(f"{cell:,}" for cell in cells)
        lines.append(f"| {name} | {numbers} | {slowest[name]:.2f} |")
    lines += ["", f"Modules imported meanwhile: {len(set(sys.modules) - modules)}."]
    (HERE / "results" / "fuzz_files.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), f"\n{time.time() - begun:.0f} s")
    if failures:
        raise SystemExit(f"{failures} files were not refused as they should be")


if __name__ == "__main__":
    main()
