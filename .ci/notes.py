"""Prints what CHANGELOG.md says of a version: `python .ci/notes.py v0.1.0`.

It fails if that is not the version of pyproject.toml, or has no date.
"""

import re
import sys
import tomllib
from pathlib import Path


ROOT = Path(__file__).parents[1]
SECTION = r"^## \[{}\] - (\S+)\n(.*?)(?=^## \[|\Z)"


def notes(version: str, changes: str) -> str:
    """The section of a version, without its heading."""
    pattern = SECTION.format(re.escape(version))
    found = re.search(pattern, changes, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section [{version}]")
    date, text = found.groups()
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise ValueError(f"[{version}] of CHANGELOG.md is dated {date!r}, not by a day")
    return text.strip()


def main() -> None:
    version = sys.argv[1].removeprefix("v")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if version != project["version"]:
        sys.exit(f"the tag is {version}, and pyproject.toml says {project['version']}")
    try:
        print(notes(version, (ROOT / "CHANGELOG.md").read_text()))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
