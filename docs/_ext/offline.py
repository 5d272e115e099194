"""A site that loads nothing from elsewhere: MathML, and a check of all pages."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging


# What a browser loads by itself; links, which it does not, may lead anywhere.
LOADED = (
    re.compile(
        r"<(?:script|img|iframe|source|video|audio)[^>]*\bsrc=\"((?:https?:)?//[^\"]+)"
    ),
    re.compile(
        r"<link(?![^>]*rel=\"(?:canonical|author))[^>]*\bhref=\"((?:https?:)?//[^\"]+)"
    ),
    re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)"),
)

SIZED = re.compile(r"\\([bB]igg?)(?![a-zA-Z])(?=\s*([(\[]|\\\{|\\langle)?)")

LOGARITHM = re.compile(r"\\(log|exp)\s+(?=[a-zA-Z])")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_formula(node, is_block=False))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{_formula(node, is_block=True)}</div>')
    raise nodes.SkipNode


def _formula(node: nodes.Element, is_block: bool) -> str:
    """A formula as MathML; one that cannot be read is a warning of the build."""
    # The converter knows large brackets only as opening or closing ones, not the sign
    # at the end of a proof, and puts no space after a logarithm.
    text = SIZED.sub(
        lambda found: f"\\{found[1]}{'l' if found[2] else 'r'}", node.astext()
    )
    text = LOGARITHM.sub(r"\\\1\\,", text.replace("∎", r"\text{∎}"))
    try:
        return tex2mathml(text.strip(), as_block=is_block)
    except MathError as error:
        logging.getLogger(__name__).warning(f"{error} {text}", location=node)
        return text


def _check(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        remote = loaded(Path(app.outdir))
        if remote:
            raise ExtensionError(f"the site loads from elsewhere: {', '.join(remote)}")


def loaded(folder: Path) -> list[str]:
    """What pages and styles in a folder would load from elsewhere."""
    files = [*folder.rglob("*.html"), *folder.rglob("*.css")]
    return [
        f"{file.relative_to(folder)} {address}"
        for file in files
        for pattern in LOADED
        for address in pattern.findall(file.read_text("utf-8"))
    ]
