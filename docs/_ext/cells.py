"""Pages whose Python runs when the site is built.

A page is plain Markdown. Each of its blocks marked `python` is a cell; the cells of a
page run in order in one process, in an empty folder, and what they print and draw is
shown below them. A block marked `python folded` shows its code on a click; one marked
`py` is shown and not run.
"""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from markdown_it import MarkdownIt
from sphinx.application import Sphinx
from sphinx.util import logging


ENVIRONMENT = {
    # A page may warn of nothing.
    "PYTHONWARNINGS": "error::UserWarning",
    "TQDM_DISABLE": "1",
    "JAX_PLATFORMS": "cpu",
    "MATPLOTLIBRC": str(Path(__file__).with_name("matplotlibrc")),
}

SETTINGS = """\
c = get_config()
c.IPKernelApp.log_level = "ERROR"  # or each kernel warns of its port
"""

KERNEL = {"name": "python3", "display_name": "Python", "language": "python"}

DOTS = 2  # of a picture for each pixel of the page, as matplotlibrc has it

# What an expression that draws returns, and no reader wants to see.
UNWANTED = re.compile(
    r"^\(?\[?<(Axes|Figure|matplotlib)|^Text\(|^array\(\[.*<Axes", re.S
)


def setup(app: Sphinx) -> dict[str, bool]:
    # IPython has a folder of its own, so that nobody's settings change the pages.
    profile = Path(app.outdir).parent / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(SETTINGS)
    os.environ.update(ENVIRONMENT, IPYTHONDIR=str(profile.parent))
    app.connect("doctree-read", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def read(text: str) -> nbformat.NotebookNode:
    """A page as a notebook, with the line at which each of its cells begins."""
    lines = text.splitlines()
    cells: list[nbformat.NotebookNode] = []
    starts: list[int] = []

    def add_prose(begin: int, end: int) -> None:
        if any(line.strip() for line in lines[begin:end]):
            prose = "\n".join(lines[begin:end])
            cells.append(nbformat.v4.new_markdown_cell(prose))
            starts.append(begin)

    done = 0
    blocks = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    for block in blocks:
        begin, end = block.map or (0, 0)
        kind = block.info.split()
        if kind[:1] != ["python"]:
            continue
        if block.level:
            raise ValueError(
                f"line {begin + 1}: a block in a list or a quote cannot run"
            )
        add_prose(done, begin)
        cell = nbformat.v4.new_code_cell(block.content.rstrip("\n"))
        if "folded" in kind:
            cell.metadata["tags"] = ["hide-input"]
        cells.append(cell)
        starts.append(begin + 1)
        done = end
    add_prose(done, len(lines))
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata |= {"source_map": starts, "kernelspec": KERNEL}
    return notebook


def _finish(app: Sphinx, document: nodes.document) -> None:
    """Takes out what is not for readers, and adds sizes and seconds."""
    for picture in document.findall(nodes.image):
        if "jupyter_execute" in picture["uri"] and picture["uri"].endswith(".png"):
            header = (Path(app.srcdir) / picture["uri"]).read_bytes()[:24]
            picture["width"] = f"{int.from_bytes(header[16:20]) // DOTS}px"
    for bundle in list(document.findall(nodes.container)):
        if bundle.get("nb_element") != "mime_bundle":
            continue
        if len(bundle) == 1 and UNWANTED.match(bundle.astext()):
            output: Any = bundle.parent
            output.remove(bundle)
            if not output.children:
                output.parent.remove(output)
    env: Any = app.env
    data = env.nb_metadata[env.docname].get("exec_data")
    if data and data["runtime"] is not None:
        seconds = max(1, round(data["runtime"]))
        text = f"The code of this page ran in {seconds} s when the site was built."
        logging.getLogger(__name__).info(f"{env.docname}: {seconds} s")
        section = next(document.findall(nodes.section), document)
        section.append(nodes.paragraph("", text, classes=["ran-in"]))
