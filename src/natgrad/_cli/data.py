"""Data sets: those that natgrad knows, and rows in random order."""

import dataclasses
from pathlib import Path
from typing import Any

from natgrad import datasets
from natgrad._cli.common import print_result, say, table
from natgrad.data._columns import counted
from natgrad.data._shuffle import shuffle as shuffle_files


def show(name: str | None, is_json: bool) -> None:
    """Lists all data sets, or prints where one is and how to get it."""
    if name is not None:
        found = described(name)
        print_result(found, is_json, _one(found))
        if not found["is_there"]:
            say(datasets.absent(datasets.describe(name), datasets.path(name)))
        return
    all_of_them = {each: described(each) for each in datasets.names()}
    lines = [f"{'name':<17}{'rows':>8}{'inputs':>8}  {'likelihood':<19}here"]
    for each, found in all_of_them.items():
        lines.append(
            f"{each:<17}{found['rows']:>8,}{found['inputs']:>8}  "
            f"{found['likelihood']:<19}{'yes' if found['is_there'] else 'no'}"
        )
    lines += ["", f"folder: {datasets.folder()}; more: natgrad datasets NAME"]
    print_result(all_of_them, is_json, "\n".join(lines))


def fetch(name: str, unverified: bool) -> None:
    """Downloads a data set, unless it is there."""
    was_there = datasets.path(name).is_file()
    file = datasets.fetch(name, unverified=unverified)
    say(f"{file} was there already" if was_there else f"{file} fetched")


def described(name: str) -> dict[str, Any]:
    """What is known of a data set, and whether it is there."""
    if name == "motorcycle":
        return {
            "name": name,
            "rows": 133,
            "inputs": 1,
            "target": "head acceleration in a crash test, g",
            "likelihood": "heteroskedastic",
            "low": -134.0,
            "high": 75.0,
            "note": "comes with natgrad; B. W. Silverman (1985)",
            "sources": [],
            "is_fetchable": False,
            "path": str(datasets.path("motorcycle")),
            "is_there": True,
        }
    known = datasets.describe(name)
    fields = dataclasses.asdict(known)
    for field in ("content", "uci", "openml", "download", "file"):
        del fields[field]
    place = datasets.path(name)
    return fields | {
        "sources": known.sources,
        "is_fetchable": known.is_fetchable,
        "path": str(place),
        "is_there": place.is_file(),
    }


def _one(found: dict[str, Any]) -> str:
    rows = {
        "name": found["name"],
        "size": f"{found['rows']:,} rows of {found['inputs']} inputs",
        "target": f"{found['target']} ({found['low']:g} to {found['high']:g})",
        "likelihood": found["likelihood"],
        "note": found["note"],
        "source": "\n            ".join(found["sources"]),
        "file": f"{found['path']} ({'here' if found['is_there'] else 'not there'})",
    }
    return table({name: value for name, value in rows.items() if value})


def shuffle(
    data: str, out: Path, rows_per_group: int, seed: int, force: bool, is_json: bool
) -> None:
    """Writes a table in random order, and prints its size."""
    written = shuffle_files(data, out, rows_per_group, seed, force)
    size = ", ".join(
        [
            counted(written.rows, "row"),
            counted(written.groups, "row group"),
            counted(written.files, "file"),
        ]
    )
    print_result({"out": str(out), **written._asdict()}, is_json, f"{size} in {out}")
