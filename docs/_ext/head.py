"""What a page says of itself to search engines, and to those who share a link to it.

The description is the first paragraph of the page, cut where a sentence ends.
"""

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


LENGTH = 200  # letters of a description, about as many as are shown
CARD = "_static/card.png"
TAG = re.compile(r"<[^>]*>")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    document: nodes.document | None,
) -> None:
    if page.startswith("reference/modules/"):
        context["page_source_suffix"] = ""  # written from the source: none to edit
    if document is None:
        return
    title = html.unescape(TAG.sub("", context["title"]))
    base = str(app.config.html_baseurl)
    properties = {
        "og:type": "website",
        "og:site_name": app.config.project,
        "og:title": title,
        "og:description": description(document),
        "og:url": f"{base}{page}.html",
        "og:image": base + CARD,
        "og:image:width": "1200",
        "og:image:height": "630",
        "og:image:alt": "natgrad: one path through two coordinate systems",
    }
    tags = [("property", name, text) for name, text in properties.items() if text]
    tags += [("name", "twitter:card", "summary_large_image")]
    if 'name="description"' not in context["metatags"] and description(document):
        tags += [("name", "description", description(document))]
    context["metatags"] += "".join(
        f'\n<meta {kind}="{name}" content="{html.escape(text)}" />'
        for kind, name, text in tags
    )


def description(document: nodes.document) -> str:
    """The first paragraph of a page, as far as there is room."""
    for paragraph in document.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section | nodes.document):
            return cut(" ".join(paragraph.astext().split()))
    return ""


def cut(text: str) -> str:
    """Whole sentences that fit, or else whole words."""
    if len(text) <= LENGTH:
        return text
    start = text[: LENGTH - 1]
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)", start)]
    return start[: ends[-1]] if ends else start.rpartition(" ")[0].rstrip(",;:") + "…"
