"""Links of a page to files that are no pages: they open in the repository.

Pages link to other files by their paths, so that the links work in a clone too. In the
site such a link leads to the file's page in the repository instead of downloading it.
A page that includes a file from above `docs` gets that file's text, its links adapted.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
REPOSITORY: str = URLS["Homepage"]
BRANCH = "main"
SITE = f"{URLS['Documentation']}/en/latest"

LINK = re.compile(
    r"(!\[[^\[\]]*)?\]\(<?(?:path:)?([^)<>#:\s]+)(#[^)<>\s]*)?>?\)"  # or a picture
)
INCLUDE = re.compile(r"^(`{3,}|:{3,})\{include\} (\S+)\n(?::.*\n)*\1$", re.M)


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", _adapt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _adapt(app: "Sphinx", page: str, source: list[str]) -> None:
    folder = (DOCS / page).parent

    def included(found: re.Match[str]) -> str:
        file = (folder / found[2]).resolve()
        if file.is_relative_to(DOCS):
            return found[0]
        app.env.note_dependency(str(file))
        return adapted(file.read_text("utf-8"), file.parent, folder)

    source[0] = INCLUDE.sub(included, adapted(source[0], folder, folder))


def adapted(text: str, origin: Path, folder: Path) -> str:
    """Text from the folder `origin`, with links as a page in `folder` needs them."""

    def changed(found: re.Match[str]) -> str:
        picture, file, anchor = found.groups("")
        path = (origin / file).resolve()
        is_page = path.is_relative_to(DOCS) and path.suffix == ".md"
        if is_page or picture:
            relative = Path(os.path.relpath(path, folder)).as_posix()
            is_right = origin == folder
            return found[0] if is_right else f"{picture}]({relative}{anchor})"
        return f"]({address(path)}{anchor})" if path.exists() else found[0]

    return LINK.sub(changed, text)


def address(path: Path) -> str:
    """The page of a file or a folder in the repository."""
    kind = "tree" if path.is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/{BRANCH}/{path.relative_to(ROOT).as_posix()}"
