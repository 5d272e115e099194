"""Data sets: those that natgrad knows, and rows in random order."""

from pathlib import Path
from typing import Any

from natgrad import datasets
from natgrad._cli.common import print_result, say, table
from natgrad._text import counted
from natgrad.data._shuffle import shuffle as shuffle_files
from natgrad.datasets import _files as files


def show(name: str | None, is_json: bool) -> None:
    """Lists all data sets, or prints where one is and how to get it."""
    if name is not None:
        found = described(name)
        print_result(found, is_json, _one(found))
        if not found["is_there"]:
            say(files.absent(files.describe(name)))
        return
    all_of_them = {each: described(each) for each in datasets.names()}
    lines = [f"{'name':<17}{'rows':>8}{'inputs':>8}  {'likelihood':<19}here"]
    for each, found in all_of_them.items():
        lines.append(
            f"{each:<17}{found['rows']:>8,}{found['inputs']:>8}  "
            f"{found['likelihood']:<19}{'yes' if found['is_there'] else 'no'}"
        )
    lines += ["", f"folder: {files.folder()}; more: natgrad datasets NAME"]
    print_result(all_of_them, is_json, "\n".join(lines))


def fetch(name: str) -> None:
    """Downloads a data set, unless it is there."""
    was_there = files.path(name).is_file()
    file = datasets.fetch(name)
    say(f"{file} was there already" if was_there else f"{file} fetched")


def described(name: str) -> dict[str, Any]:
    """What is known of a data set, and whether it is there."""
    known, file = files.describe(name), files.path(name)
    shape = ("name", "rows", "inputs", "target", "likelihood")
    found = {key: getattr(known, key) for key in (*shape, "note", "sha256", "source")}
    return found | {"path": str(file), "is_there": file.is_file()}


def _one(found: dict[str, Any]) -> str:
    rows = {
        "name": found["name"],
        "size": f"{found['rows']:,} rows of {found['inputs']} inputs",
        "target": found["target"],
        "likelihood": found["likelihood"],
        "note": found["note"],
        "source": found["source"],
        "file": f"{found['path']} ({'here' if found['is_there'] else 'not there'})",
    }
    return table({name: value for name, value in rows.items() if value})


def shuffle(
    data: str, out: Path, rows_per_group: int, seed: int, force: bool, is_json: bool
) -> None:
    """Writes a table in random order, and prints its size."""
    written = shuffle_files(data, out, rows_per_group, seed, force)
    counts = (written.rows, written.groups, written.files)
    size = ", ".join(map(counted, counts, ("row", "row group", "file")))
    print_result({"out": str(out), **written._asdict()}, is_json, f"{size} in {out}")
