"""What the site is made of: notebooks that run, links that open, a logo and a card."""

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import jax
import pytest
from PIL import Image


pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "_ext"))

import links  # noqa: E402
import notebooks  # noqa: E402


MAIN = "https://github.com/natgrad/natgrad/blob/main"


@pytest.fixture(params=notebooks.pages(), ids=lambda page: page.stem)
def notebook(request) -> dict[str, Any]:
    return notebooks.notebook(request.param)


def code(notebook: dict[str, Any]) -> list[str]:
    """The cells that are Python."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell["source"] for cell in cells if not cell["source"].startswith("%")]


def test_every_tutorial_and_every_page_of_the_gallery_is_a_notebook():
    pages = {*DOCS.glob("tutorials/*.md"), *DOCS.glob("gallery/*.md")}
    assert {page for page in pages if page.stem != "index"} == set(notebooks.pages())


def test_a_notebook_has_a_title_and_code_and_no_directive(notebook):
    prose = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    assert prose[1]["source"].startswith("# ")
    assert len(notebook["cells"]) > len(prose)
    for cell in prose:
        text = cell["source"]
        assert "```{" not in text and ":::" not in text
        assert ".md)" not in text.replace(f"{MAIN}/", "") and "](.." not in text
        assert text.count("](attachment:") == len(cell.get("attachments", {}))


def test_the_code_of_a_notebook_takes_no_arguments(notebook):
    for cell in code(notebook):
        ast.parse(cell)
        assert "argparse" not in cell and "__main__" not in cell


@pytest.mark.skipif("NATGRAD_DATA" not in os.environ, reason="NATGRAD_DATA is not set")
def test_a_notebook_runs(tmp_path):
    made = notebooks.notebook(DOCS / "gallery" / "class_boundary.md")
    (tmp_path / "cells.py").write_text("\n".join(code(made)), "utf-8")
    settings = {**os.environ, "MPLBACKEND": "agg"}
    if jax.config.jax_compilation_cache_dir:
        settings["JAX_COMPILATION_CACHE_DIR"] = jax.config.jax_compilation_cache_dir
    command = [sys.executable, "-W", "error::UserWarning", "cells.py"]
    options: Any = {"cwd": tmp_path, "env": settings, "text": True}
    done = subprocess.run(command, capture_output=True, timeout=900, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert (tmp_path / "class_boundary.png").is_file()


PAGE = """\
# A page

See [a page](other.md#part), [a table](../../benchmarks/x.csv) and `code`.

:::{note}
:class: small
A [nat](../glossary.md) is {term}`a unit <nat>`.
:::

```sh
pip install natgrad
```

```console
$ natgrad train a.csv \\
>   --target y
printed
```

```text
kept
```

```{toctree}
gone
```
"""


def test_a_notebook_has_the_directives_written_out(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "ROOT", tmp_path)
    monkeypatch.setattr(links, "DOCS", tmp_path / "docs")
    page = tmp_path / "docs" / "tutorials" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "x.csv").touch()
    _, prose, install, shell, rest = notebooks.notebook(page)["cells"]
    assert f"[a page]({links.SITE}/tutorials/other.html#part)" in prose["source"]
    assert f"[a table]({MAIN}/benchmarks/x.csv)" in prose["source"]
    note = f"> **Note**\n> \n> A [nat]({links.SITE}/glossary.html) is a unit."
    assert note in prose["source"]
    assert install["source"] == "%pip install natgrad"
    assert shell["source"] == "%%bash\nnatgrad train a.csv \\\n  --target y"
    assert rest["source"] == "```text\nkept\n```"


@pytest.mark.parametrize(
    ("link", "adapted"),
    [
        ("](../../README.md#use)", f"]({MAIN}/README.md#use)"),
        ("](<path:../../pyproject.toml>)", f"]({MAIN}/pyproject.toml)"),
        ("](../../tests)", "](https://github.com/natgrad/natgrad/tree/main/tests)"),
        (
            "](../results/paper/fig1.parquet)",
            f"]({MAIN}/docs/results/paper/fig1.parquet)",
        ),
        ("](index.md)", "](index.md)"),
        ("![a](../figures/readme.png)", "![a](../figures/readme.png)"),
        ("[a](../figures/readme.png)", f"[a]({MAIN}/docs/figures/readme.png)"),
        ("](https://jax.dev)", "](https://jax.dev)"),
    ],
)
def test_links_to_files_that_are_no_pages_open_in_the_repository(link, adapted):
    folder = DOCS / "howto"
    assert links.adapted(link, folder, folder) == adapted


def test_links_of_an_included_file_are_those_of_the_page():
    text = "](docs/howto/index.md#a) ![](docs/figures/readme.png) ](LICENSE)"
    found = links.adapted(text, ROOT, DOCS / "development").split()
    assert found == [
        "](../howto/index.md#a)",
        "![](../figures/readme.png)",
        f"]({MAIN}/LICENSE)",
    ]


@pytest.mark.parametrize("name", ["logo", "favicon"])
def test_the_logo_is_a_small_square_that_loads_nothing(name):
    file = DOCS / "_static" / f"{name}.svg"
    root = xml.parse(file).getroot()
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    assert width == height and left == top == 0
    assert file.stat().st_size < 3000
    assert "href" not in file.read_text("utf-8")


def test_the_card_has_the_size_that_is_announced():
    with Image.open(DOCS / "_static" / "card.png") as card:
        assert card.size == (1200, 630)
