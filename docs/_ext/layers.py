"""The table of layers, read from the import contract and the docstrings of modules."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("layers", Layers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Layers(SphinxDirective):
    """Every file of natgrad, from the lowest layer to the highest, folded away."""

    def run(self) -> list[nodes.Node]:
        parent = nodes.Element()
        text = f":::{{dropdown}} Every file, layer by layer\n{table()}\n:::"
        self.state.nested_parse(StringList(text.splitlines()), 0, parent)
        return parent.children


def table() -> str:
    """The layers in Markdown; a file imports only from rows above its own."""
    rows = [
        f"| {number} | `{path.relative_to(SOURCE / 'natgrad')}` | {opening(path)} |"
        for number, names in enumerate(layers())
        for name in names
        for path in files(name)
    ]
    return "\n".join(["| layer | file | what it holds |", "|---|---|---|", *rows])


def layers() -> list[list[str]]:
    """The modules of each layer, the lowest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    return [layer.split(" | ") for layer in reversed(contract["layers"])]


def files(module: str) -> Iterator[Path]:
    """The file of a module, or those of a package."""
    stem = SOURCE / "natgrad" / module
    yield from (
        sorted(stem.rglob("*.py")) if stem.is_dir() else [stem.with_suffix(".py")]
    )


def opening(path: Path) -> str:
    """The first sentence of a file."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")
