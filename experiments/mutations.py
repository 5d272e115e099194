"""Whether the tests notice mistakes that are planted in the library, one at a time.

    python experiments/mutations.py               # those that were not tried yet
    python experiments/mutations.py --only 7 12   # some of them
    python experiments/mutations.py --again       # all, the test that knew them first
    python experiments/mutations.py --table       # the table of what is there

The library is copied with one text of it replaced, and tests of the default suite run
against the copy until one fails: the nearest, then their file, then its folder. At the
end all tests that have failed run without a mistake, and must pass. Every trial is a
line of results/mutations.jsonl, and the table goes to results/mutations.md.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutations_cases import MUTATIONS, Mutation


ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"
STORE, TABLE = RESULTS / "mutations.jsonl", RESULTS / "mutations.md"

PASSED, FAILED, UNKNOWN, NONE = 0, 1, 4, 5
"""How pytest exits: all passed, one failed, there is no such test, or none to run."""

LIMIT = 1800
"""Seconds that a run of tests may take."""


def trials() -> dict[int, list[dict[str, Any]]]:
    """All trials there are, of each mutation in order."""
    lines = STORE.read_text().splitlines() if STORE.exists() else []
    found: dict[int, list[dict[str, Any]]] = {}
    for line in map(json.loads, lines):
        found.setdefault(line["number"], []).append(line)
    return found


def planted(mutation: Mutation, folder: Path) -> Path:
    """A copy of the library with the mistake in it."""
    source = folder / "src"
    for name in ("src", "paper"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    file = source / "natgrad" / mutation.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.file} has {mutation.old!r} not once")
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    return source


def failures(source: Path, *tests: str) -> list[str]:
    """The tests of a library that fail."""
    # The copies come before the clone.
    command = [sys.executable, "-P", "-m", "pytest", "--import-mode=append"]
    paths = f"{source}{os.pathsep}{source.parent}"
    run = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    lines = r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$"
    failed = re.findall(lines, run.stdout, re.MULTILINE)
    is_told = run.returncode in (PASSED, UNKNOWN, NONE) or failed
    if not is_told or run.returncode not in (PASSED, FAILED, UNKNOWN, NONE):
        raise SystemExit(f"pytest {' '.join(tests)}\n{run.stdout}\n{run.stderr}")
    return failed if run.returncode == FAILED else []


def nearer(mutation: Mutation, known: str | None) -> Iterator[tuple[str, ...]]:
    """What to run, one after the other: the nearest tests first."""
    file = f"tests/{mutation.tests}"
    if known is not None:
        yield (known,)
    if mutation.words:
        yield file, "-k", mutation.words
    yield (file,)
    if (folder := str(Path(file).parent)) != "tests":
        yield folder, f"--ignore={file}"


def tried(mutation: Mutation, known: str | None, is_narrow: bool) -> dict[str, Any]:
    """Whether a mistake is noticed, and by which test."""
    begun, ran, by = time.monotonic(), [], None
    with tempfile.TemporaryDirectory() as folder:
        source = planted(mutation, Path(folder))
        for tests in nearer(mutation, known):
            if is_narrow and "--ignore" in tests[-1]:
                break
            ran.append(" ".join(tests))
            if failed := failures(source, "-x", *tests):
                by = failed[0]
                break
    return {"by": by, "ran": ran, "seconds": round(time.monotonic() - begun, 1)}


def table() -> str:
    """What noticed each mistake, and which survived the first trial."""
    found = trials()
    first, last = (
        sum(of[at]["by"] is not None for of in found.values()) for at in (0, -1)
    )
    lines = [
        "`python experiments/mutations.py`",
        "",
        f"Noticed at the first trial: {first} of {len(found)}; with the tests that "
        f"were written since: {last} of {len(found)}.",
        "",
        "Each was tried against the tests nearest to it, which mutations.jsonl names; "
        "what survived these may be noticed by others of the suite.",
        "",
        "| | file | what the mistake does | noticed by |",
        "|---|---|---|---|",
    ]
    for number, mutation in enumerate(MUTATIONS, 1):
        if number in found:
            first, *_, last = [trial["by"] for trial in found[number] * 2]
            by = "no test" if last is None else f"`{last.removeprefix('tests/')}`"
            by = by if first else f"survived first; since: {by}"
            lines.append(f"| {number} | {mutation.file} | {mutation.harm} | {by} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=int, nargs="+", metavar="N")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--narrow", action="store_true", help="leave out the folders")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    wanted = options.only or range(1, len(MUTATIONS) + 1)
    noticing = set()
    for number in () if options.table else wanted:
        before = trials().get(number, [])
        if before and not options.again:
            continue
        known = next((trial["by"] for trial in reversed(before) if trial["by"]), None)
        trial = tried(MUTATIONS[number - 1], known, options.narrow)
        by = trial["by"] or "SURVIVED"
        print(number, MUTATIONS[number - 1].file, by, trial["seconds"], flush=True)
        with STORE.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"number": number, **trial}) + "\n")
        noticing |= {trial["by"]} - {None}
    TABLE.write_text(table(), encoding="utf-8")
    # A test that fails of itself has noticed nothing.
    if noticing and (wrong := failures(ROOT / "src", *sorted(noticing))):
        raise SystemExit(f"these fail without a mistake: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
