"""How the site is built: python -m sphinx -W --keep-going -j 2 docs docs/_build/html"""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx


HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import links  # noqa: E402


project = "natgrad"
author = "The natgrad developers"
copyright = author
release = re.findall(
    r'^version = "(.*)"', (HERE.parent / "pyproject.toml").read_text(), re.M
)[0]
extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "cells",
    "head",
    "layers",
    "links",
    "notebooks",
    "offline",
    "pages",
]
smartquotes = False  # they get formulas and code in prose wrong
exclude_patterns = ["_build", "_ext"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "colon_fence", "html_image"]
myst_heading_anchors = 3
myst_dmath_allow_space = False
myst_dmath_allow_digits = False

nb_custom_formats = {".md": "cells.read"}
nb_execution_mode = "auto"
nb_execution_timeout = 180
nb_execution_in_temp = True
nb_execution_show_tb = True  # a warning, and so an error of the build
nb_output_stderr = "remove"
nb_merge_streams = True

python_maximum_signature_line_length = 68
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
html_title = f"natgrad {release}"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", f"{links.SITE}/")
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_context = {"repository": links.REPOSITORY}
html_theme_options = {
    "source_repository": links.REPOSITORY,
    "source_branch": links.BRANCH,
    "source_directory": "docs",
    "light_css_variables": {
        "color-brand-primary": "#00629b",
        "color-brand-content": "#00629b",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5cb8ea",
        "color-brand-content": "#5cb8ea",
    },
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "repository.html",
        "sidebar/scroll-end.html",
    ]
}
html_static_path = ["_static"]
html_css_files = ["natgrad.css"]
html_scaled_image_link = False
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"

# Tables that commands write, and that have no heading of their own.
TITLES = {"results/paper/claims": "The claims of the paper, one by one"}


def setup(app: Sphinx) -> None:
    app.connect("source-read", _adapt)


def _adapt(app: Sphinx, page: str, source: list[str]) -> None:
    if page in TITLES:
        source[0] = f"# {TITLES[page]}\n\n{source[0]}"
