"""Tutorials and pages of the gallery, as notebooks to download.

Blocks marked `python` become cells, blocks of shell commands `%%bash` cells, and
scripts that a page includes cells that call their `main`. All else is Markdown, with
the directives of the site written out, links that lead to the site, and pictures
inside the notebook. Needs nothing but Python, so that it is tested with the rest.
"""

import ast
import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import links


if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

FOLDERS = ("tutorials", "gallery")
PLACE = "_downloads/notebooks"

FENCE = re.compile(r"(`{3,}|:{3,})\s*(\{[\w-]+\})?\s*(.*)$")
OPTION = re.compile(r":[\w-]+:")
# Directives that frame prose; of the others nothing is left.
FRAMES = {"grid", "grid-item", "tab-set", "div", "container"}
TITLED = {"grid-item-card", "card", "tab-item", "dropdown", "admonition"}
BOXES = {"note", "tip", "hint", "important", "warning", "caution", "seealso"}
ROLE = re.compile(r"\{[\w:]+\}`([^`<]+?)(?:\s*<[^`>]*>)?`")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)(?:\{[^}]*\})?")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+\.md)?(#[^)\s]*)?\)")


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("doctree-read", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def pages() -> list[Path]:
    """The pages that are notebooks too."""
    found = [page for name in FOLDERS for page in (links.DOCS / name).glob("*.md")]
    return sorted(page for page in found if page.stem != "index")


def _link(app: "Sphinx", document: "nodes.document") -> None:
    """Puts the link below the title of a page."""
    from docutils import nodes

    page = app.env.docname
    if links.DOCS / f"{page}.md" in pages():
        up = "../" * page.count("/")
        text = (
            f'<p class="notebook"><a href="{up}{PLACE}/{page}.ipynb" download>'
            "Download this page as a notebook</a></p>"
        )
        section = next(document.findall(nodes.section))
        section.insert(1, nodes.raw("", text, format="html"))


def _write(app: "Sphinx", error: Exception | None) -> None:
    """Writes all notebooks, each of them a valid one."""
    if error is not None or app.builder.format != "html":
        return
    import nbformat

    for page in pages():
        made = notebook(page)
        nbformat.validate(nbformat.from_dict(made))
        out = Path(app.outdir) / PLACE / page.relative_to(links.DOCS)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_suffix(".ipynb").write_text(json.dumps(made, indent=1), "utf-8")


def notebook(page: Path) -> dict[str, Any]:
    """A page as a notebook that has not been run."""
    name = page.relative_to(links.DOCS).with_suffix(".html").as_posix()
    origin = f"*From [natgrad's documentation]({links.SITE}/{name}).*"
    cells = [_markdown(origin, page)]
    for kind, text in _parts(page):
        if kind == "code":
            cells.append(_cell("code", text) | {"execution_count": None, "outputs": []})
        elif text.strip():
            cells.append(_markdown(text.strip("\n"), page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, text: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text}


def _markdown(text: str, page: Path) -> dict[str, Any]:
    """A cell of prose: links lead to the site, pictures are in the cell itself."""
    attachments: dict[str, dict[str, str]] = {}

    def embedded(found: re.Match[str]) -> str:
        file = page.parent / found[2]
        kind = "svg+xml" if file.suffix == ".svg" else file.suffix[1:]
        data = base64.b64encode(file.read_bytes()).decode()
        attachments[file.name] = {f"image/{kind}": data}
        return f"![{found[1]}](attachment:{file.name})"

    def led(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve() if found[2] else page
        path = target.relative_to(links.DOCS).with_suffix(".html").as_posix()
        return f"[{found[1]}]({links.SITE}/{path}{found[3] or ''})"

    text = ROLE.sub(r"\1", links.adapted(text, page.parent, page.parent))
    cell = _cell("markdown", LINK.sub(led, PICTURE.sub(embedded, text)))
    return cell | ({"attachments": attachments} if attachments else {})


def _parts(page: Path) -> Iterator[tuple[str, str]]:
    """Code and prose of a page, in their order."""
    prose: list[str] = []
    boxes: list[tuple[str, str]] = []  # directives that are open: fence, quotation mark
    lines = iter(page.read_text("utf-8").split("\n"))
    for line in lines:
        fence = FENCE.match(line)
        quote = "".join(mark for _, mark in boxes)
        if fence is None:
            # Options of a directive come first in it, and are not for readers.
            if not (boxes and OPTION.match(line)):
                prose.append(quote + line)
            continue
        if boxes and not fence[2] and not fence[3] and fence[1] == boxes[-1][0]:
            boxes.pop()
            continue
        name = (fence[2] or "")[1:-1]
        if name in FRAMES | TITLED | BOXES:
            title = fence[3] if name in TITLED else name.title() * (name in BOXES)
            is_box = name in BOXES or name == "admonition"
            boxes.append((fence[1], "> " if is_box else ""))
            if title:
                prose.append(quote + boxes[-1][1] + f"**{title}**")
                prose.append(quote + boxes[-1][1])
            continue
        body = _until(lines, fence[1])
        cells = list(_code(name or fence[3], fence[3], body, page))
        if cells:
            yield "prose", "\n".join(prose)
            yield from (("code", cell) for cell in cells)
            prose = []
        elif not name:
            prose += [quote + one for one in (line, *body, fence[1])]
    yield "prose", "\n".join(prose)


def _until(lines: Iterator[str], fence: str) -> list[str]:
    body: list[str] = []
    for line in lines:
        if line.rstrip() == fence:
            break
        body.append(line)
    return body


def _code(kind: str, argument: str, body: list[str], page: Path) -> Iterator[str]:
    """The cells that a block becomes; of most blocks, none."""
    if kind == "python":
        yield "\n".join(body)
    elif kind in ("console", "sh", "bash"):
        commands = [line.removeprefix("$ ") for line in body if line.strip()]
        if kind == "console":
            commands = [line[2:] for line in body if line.startswith(("$ ", "> "))]
        if commands and all(line.startswith("pip install") for line in commands):
            yield "\n".join(f"%{line}" for line in commands)
        elif commands:
            yield "\n".join(["%%bash", *commands])
    elif kind == "literalinclude" and argument.endswith(".py"):
        yield from script((page.parent / argument).read_text("utf-8"))


def script(text: str) -> Iterator[str]:
    """A script of the gallery as two cells: what it defines, and the call of `main`."""
    tree, lines = ast.parse(text), text.split("\n")
    # The page has its docstring already, and a notebook has no arguments.
    has_docstring = ast.get_docstring(tree) is not None
    first = (tree.body[0].end_lineno or 0) if has_docstring else 0
    kept = lines[first : tree.body[-1].lineno - 1]
    kept = [line for line in kept if line != "import argparse"]
    yield re.sub(r"\n{4,}", "\n\n\n", "\n".join(kept).strip("\n"))
    (out,) = re.findall(r'default=(Path\(".+?"\))', text)
    yield f"main({out})"
