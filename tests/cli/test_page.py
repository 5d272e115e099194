"""What the pages on the command line show is what the commands print."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest


PAGES = Path(__file__).parents[2] / "docs"
NUMBER = r"-?\d[\d,]*(?:\.\d+)*(?:e-?\d+)?"
ANYTHING = r"(?:.|\n)*"

# In one process, as each would import JAX anew.
DRIVER = """
import contextlib, io, json, sys
from natgrad._cli import main

for arguments in json.loads(sys.argv[1]):
    both = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(both), contextlib.redirect_stderr(both):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    both.flush()
    print(json.dumps([code, both.buffer.getvalue().decode()]), flush=True)
"""


def blocks_of(page: str, kind: str) -> list[str]:
    text = (PAGES / page).read_text("utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The commands of the page, and what it says that they print."""
    blocks = blocks_of(page, "console")
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.M)]
    return [part.split("\n", 1) for part in parts if part]


def pattern(shown: str) -> str:
    """What is shown, with any numbers, any spaces, and anything for three dots."""
    parts = re.split(rf"(\.\.\.|{NUMBER}|\s+)", shown.strip())
    kinds = {r"\.\.\.": ANYTHING, NUMBER: NUMBER, r"\s+": r"\s+"}
    made = ""
    for part in parts:
        known = [kinds[kind] for kind in kinds if re.fullmatch(kind, part)]
        made += known[0] if known else re.escape(part)
    return made


def make_dataset(folder: Path) -> None:
    """Two files of the rows of the page's data set."""
    folder.mkdir()
    for number in range(2):
        times = np.linspace(2, 58, 200)
        table = arrow.table({"id": np.arange(200) + 200 * number, "times": times})
        parquet.write_table(table, folder / f"{number}.parquet")


@pytest.mark.parametrize("name", ["howto/cli.md", "tutorials/table.md"])
def test_the_page_shows_what_the_commands_print(name, tmp_path):
    page = commands(name)
    make_dataset(tmp_path / "data")
    # The files that a page's commands read are made by its own blocks.
    makers = "\n".join(blocks_of(name, "python"))
    arguments = [command.removeprefix("natgrad ").split() for command, _ in page]
    found = subprocess.run(
        [sys.executable, "-c", makers + DRIVER, json.dumps(arguments)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(said) == len(page), found.stderr[-2000:]
    for (command, shown), (code, printed) in zip(page, said, strict=True):
        assert code == 0, (command, printed)
        assert re.fullmatch(pattern(shown), printed.strip()), (command, printed)


def test_a_pattern_is_met_by_other_numbers_and_by_no_other_words():
    shown = "rows  133\nstep ...\nerror -4.5 (at most 1e-10)"
    same = "rows 7\nstep 3 of 9\nand so on\nerror   0.25 (at most 2.5e-7)"
    assert re.fullmatch(pattern(shown), same)
    assert not re.fullmatch(pattern(shown), same.replace("error", "loss"))
