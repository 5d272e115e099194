"""A table in random order."""

from pathlib import Path

from natgrad._cli.common import give
from natgrad.data._columns import counted
from natgrad.data._shuffle import shuffle as shuffle_files


def shuffle(
    data: str, out: Path, rows_per_group: int, seed: int, force: bool, is_json: bool
) -> None:
    """Writes a table in random order, and says how much it was."""
    written = shuffle_files(data, out, rows_per_group, seed, force)
    said = ", ".join(
        [
            counted(written.rows, "row"),
            counted(written.groups, "row group"),
            counted(written.files, "file"),
        ]
    )
    give({"out": str(out), **written._asdict()}, is_json, f"{said} in {out}")
