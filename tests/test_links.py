"""Pages of the documentation hang together: each is listed, and each link leads on."""

import re
import sys
from pathlib import Path

import pytest


pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))

import public  # noqa: E402


# Made when the site is built, from the source.
MADE = {f"{module}.md" for module in public.modules()} | {"command_line.md"}
IN_SITE = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if not {"_build", "_ext", "modules"} & set(path.relative_to(ROOT).parts)
]
PAGES = [*IN_SITE, *sorted(ROOT.glob("*.md"))]

FENCES = re.compile(r"^(`{3,}|:{3,})(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINKS = re.compile(r"\]\(<?([^)<>\s]+)>?\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """The text of a page, without code."""
    text = re.sub(r"^( {4,}|\t).*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
    return re.sub(r"`[^`\n]+`", "", FENCES.sub("", text))


def anchors(path: Path) -> set[str]:
    """What a page's headings are called in links, here and on most forges."""
    titles = re.findall(r"^#+ (.*)$", FENCES.sub("", path.read_text("utf-8")), re.M)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in titles
    }


def listed(path: Path) -> list[Path]:
    """The pages that the tables of contents of a page name."""
    return [
        (path.parent / f"{entry}.md").resolve()
        for _, kind, body in FENCES.findall(path.read_text("utf-8"))
        if kind == "{toctree}"
        for entry in body.split("\n")
        if entry and not entry.startswith(":") and "modules/" not in entry
    ]


def test_every_page_is_in_a_table_of_contents():
    start = ROOT / "docs" / "index.md"
    found, waiting = {start}, [start]
    while waiting:
        below = [page for page in listed(waiting.pop()) if page not in found]
        found |= set(below)
        waiting += [page for page in below if page.is_file()]
    assert {name(path) for path in found} == {name(path) for path in IN_SITE}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_leads_somewhere(page):
    for link in LINKS.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.removeprefix("path:").partition("#")
        target = (page.parent / file).resolve() if file else page
        if target.parent.name == "modules" and target.name in MADE:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", IN_SITE, ids=name)
def test_every_card_of_a_page_leads_somewhere(page):
    for link in re.findall(r"^:link: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
        assert (page.parent / f"{link}.md").is_file(), link
