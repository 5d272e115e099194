"""Writes `.ci/requirements-*.txt`: what the gate installs, each archive by its SHA-256.

Versions stay as they are; `--upgrade` takes the newest that fit. Hashes are those of
the archives that pip would install here, on x86-64 Linux.

    python .ci/lock.py --python 3.11=python3.11 --python 3.13=python3.13
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path


CI = Path(__file__).parent
BUILD = ["build", "hatchling", "hatch-fancy-pypi-readme"]
TOOLS = ["twine", "check-wheel-contents", "cyclonedx-bom", "pip-audit"]
SETS: dict[str, tuple[str, list[str]]] = {
    "pip": ("3.11", ["pip"]),
    "build": ("3.11", BUILD),
    "tools": ("3.11", [*BUILD, *TOOLS]),
    "3.11": ("3.11", ["{root}[test,lint,docs]"]),
    "nightly": ("3.11", ["{root}[nightly,docs]"]),
    "docs": ("3.11", ["{root}[docs]"]),
    "3.13": ("3.13", ["{root}[test]"]),
}
"""Of each file, the Python it is for, and what is asked of pip."""


def pins(text: str) -> list[str]:
    """The versions of a file, without their hashes."""
    return re.findall(r"^[^\s#]+==[^\s;\\]+", text, re.MULTILINE)


def locked(report: dict) -> str:
    """The lines of a file, from what pip reports that it would install."""
    lines = []
    for found in report["install"]:
        name, version = found["metadata"]["name"], found["metadata"]["version"]
        if name == "natgrad":
            continue
        name = re.sub(r"[-_.]+", "-", name).lower()
        digest = found["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")
    return "".join(sorted(lines))


def resolved(python: str, wanted: list[str], constraints: list[str]) -> dict:
    """What pip would install in an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        kept, report = Path(folder, "kept.txt"), Path(folder, "report.json")
        kept.write_text("\n".join(constraints) + "\n")
        command = [python, "-m", "pip", "install", "-qq", "--dry-run"]
        command += ["--ignore-installed", "--only-binary", ":all:"]
        command += ["--report", str(report), "-c", str(kept), *wanted]
        subprocess.run(command, check=True)
        return json.loads(report.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", required=True, metavar="3.11=PATH")
    parser.add_argument("--upgrade", action="store_true", help="take newer versions")
    parser.add_argument("--only", action="append", choices=SETS, metavar="SET")
    options = parser.parse_args()
    pythons = dict(pair.split("=", 1) for pair in options.python)
    for name in options.only or SETS:
        version, asked = SETS[name]
        file = CI / f"requirements-{name}.txt"
        kept = file.read_text() if file.exists() and not options.upgrade else ""
        wanted = [each.format(root=CI.parent) for each in asked]
        file.write_text(locked(resolved(pythons[version], wanted, pins(kept))))
        print(f"{file.name}: {len(pins(file.read_text()))} packages")


if __name__ == "__main__":
    main()
