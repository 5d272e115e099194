"""Runs the scripts of the gallery and writes its pages and pictures.

    python examples/gallery/make.py                      all of them
    python examples/gallery/make.py claims humidity    some, and the index
    python examples/gallery/make.py --check              compare with the pages

A check writes nothing. It fails if a script fails or warns, or if a number differs from
that on its page by more than 2 %, or by more than the script's own TOLERANCE.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from PIL import Image


HERE = Path(__file__).resolve().parent
PAGES = HERE.parents[1] / "docs" / "gallery"
SECTIONS = {
    "Regression": [
        "motorcycle",
        "concrete_strength",
        "yacht_resistance",
        "humidity",
        "bike_hires",
        "weekly_rhythm",
    ],
    "Classification and grades": [
        "class_boundary",
        "calibrated_diagnosis",
        "wine_quality",
        "misread_digits",
    ],
    "Targets of several numbers": [
        "claims",
        "school_scores",
        "doctor_visits",
        "survival",
        "below_the_limit",
        "sea_months",
    ],
    "Large and growing tables": ["flight_delays"],
    "How it works": ["naval_bounds"],
}
NAMES = [name for names in SECTIONS.values() for name in names]
OPENING = """# Gallery

Each page of the gallery answers one question about real data, with a picture, the
numbers and the whole script. You can copy a script and change it to fit your own
data. You need `pip install "natgrad[cli]" pandas`. The data sets come with natgrad or
scikit-learn, or you download one with `natgrad datasets NAME --fetch`. The script
`examples/scale/flights.py` makes the flights. Scripts with tables of several numbers
name the package that has each; save it as Parquet in the folder `NATGRAD_DATA`.
"""
TOLERANCE = 0.02
LARGE = 75_000  # bytes, above which a picture gets fewer colours
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# One thread each: scripts would compete for cores, and sums depend on threads.
SETTINGS = {
    "MATPLOTLIBRC": str(HERE / "matplotlibrc"),
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


class Run(NamedTuple):
    """What a script printed, its CPU seconds, and its problem, if any."""

    name: str
    printed: str
    seconds: float
    problem: str


def source(name: str) -> str:
    return (HERE / f"{name}.py").read_text("utf-8")


def docstring(name: str) -> tuple[str, str]:
    """The question of a script, and the rest of its docstring."""
    question, _, rest = (ast.get_docstring(ast.parse(source(name))) or "").partition(
        "\n"
    )
    return question, rest.strip()


def picture(name: str) -> str:
    """The file name that a script gives its picture."""
    return re.findall(r'default=Path\("(.+?)"\)', source(name))[0]


def tolerance(name: str) -> float:
    stated = re.search(r"^TOLERANCE = ([\d.]+)", source(name), re.MULTILINE)
    return float(stated[1]) if stated else TOLERANCE


def run(name: str, folder: Path, is_check: bool) -> Run:
    """Runs a script in a process of its own; its picture goes into the folder.

    A check uses the caller's XLA_FLAGS and compilation cache.
    """
    command = [sys.executable, HERE / f"{name}.py", "--out", folder / picture(name)]
    settings = {**os.environ, **SETTINGS}
    if is_check:
        settings["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", settings["XLA_FLAGS"])
    else:
        settings.pop("JAX_COMPILATION_CACHE_DIR", None)  # a reader has no cache yet
    with tempfile.TemporaryFile("w+") as words, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=words, stderr=errors, env=settings)
        # CPU time, because other work on the machine changes wall-clock time.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed, complaint = (read(file) for file in (words, errors))
    problem = ""
    if process.returncode or "Warning" in complaint:
        problem = f"left with code {process.returncode}\n{complaint}"
    return Run(name, printed, used.ru_utime + used.ru_stime, problem)


def read(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip()


def difference(name: str, printed: str, stored: str) -> str:
    """The first difference beyond the tolerance; empty if there is none."""
    if NUMBER.sub("", printed) != NUMBER.sub("", stored):
        return f"printed other words:\n{printed}\nand not:\n{stored}"
    for now, then in zip(NUMBER.findall(printed), NUMBER.findall(stored), strict=True):
        # A printed number is rounded.
        last = 0.5 * 10.0 ** -len(then.partition(".")[2])
        if abs(float(now) - float(then)) > tolerance(name) * abs(float(then)) + last:
            return f"printed {now} and not {then}, in:\n{printed}"
    return ""


def shrunk(path: Path) -> None:
    """Makes a picture smaller, and a thumbnail for the index."""
    image = Image.open(path)
    colours = image.convert("RGB")
    for number in (256, 128, 64, 32, 16):
        if path.stat().st_size > LARGE:
            colours.quantize(number).save(path, optimize=True)
    colours.thumbnail((320, 240), Image.Resampling.LANCZOS)
    # One shape for all, so that the cards of a row have equal heights.
    card = Image.new("RGB", (320, 210), "white")
    card.paste(colours, ((320 - colours.width) // 2, (210 - colours.height) // 2))
    (path.parent / "small").mkdir(exist_ok=True)
    card.quantize(64).save(path.parent / "small" / f"{path.stem}.png", optimize=True)


def page(done: Run) -> str:
    question, text = docstring(done.name)
    return f"""# {question}

{text}

![{question}]({picture(done.name)})

The script took {done.seconds:.0f} CPU seconds and printed:

```text
{done.printed}
```

```{{literalinclude}} ../../examples/gallery/{done.name}.py
:language: python
```
"""


def stored(name: str) -> str:
    """What a script printed, according to its page."""
    text = (PAGES / f"{name}.md").read_text("utf-8")
    return re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)[0]


def index() -> str:
    parts = [OPENING]
    for section, names in SECTIONS.items():
        parts.append(f"\n## {section}\n\n````{{grid}} 1 2 3 3\n:gutter: 3\n")
        for name in names:
            parts.append(
                f"\n```{{grid-item-card}} {docstring(name)[0]}\n"
                f":img-top: small/{name}.png\n:link: {name}\n:link-type: doc\n```\n"
            )
        parts.append("````\n")
    return "".join(
        [*parts, "\n```{toctree}\n:hidden:\n\n", "\n".join(NAMES), "\n```\n"]
    )


def main(names: list[str], jobs: int, is_check: bool) -> int:
    PAGES.mkdir(parents=True, exist_ok=True)
    problems = 0
    with tempfile.TemporaryDirectory() as other, ThreadPoolExecutor(jobs) as pool:
        folder = Path(other) if is_check else PAGES
        for done in pool.map(lambda name: run(name, folder, is_check), names):
            problem = done.problem
            if not problem and is_check:
                problem = difference(done.name, done.printed, stored(done.name))
            elif not problem:
                shrunk(PAGES / picture(done.name))
                (PAGES / f"{done.name}.md").write_text(page(done), "utf-8")
            problems += bool(problem)
            print(
                f"{done.name:22s}{done.seconds:5.0f} s  {problem or 'good'}", flush=True
            )
    if not is_check:
        (PAGES / "index.md").write_text(index(), "utf-8")
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of scripts; all, if none is given")
    parser.add_argument("--jobs", type=int, default=2, help="scripts at a time")
    parser.add_argument(
        "--check", action="store_true", help="run, compare, write nothing"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no script {', '.join(unknown)}; there are {', '.join(NAMES)}")
    sys.exit(main(arguments.names or NAMES, arguments.jobs, arguments.check) > 0)
