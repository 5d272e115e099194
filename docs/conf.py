"""How the site is built: python -m sphinx -W --keep-going -j 2 docs docs/_build/html"""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx


HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

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
    "layers",
    "pages",
    "offline",
]
smartquotes = False  # they get formulas and code in prose wrong
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["dollarmath", "colon_fence"]
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
html_title = f"natgrad {release}"
html_static_path = ["_static"]
html_css_files = ["natgrad.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"

# Tables that commands write, and that have no heading of their own.
TITLES = {
    "results/paper/claims": "The claims of the paper, one by one",
    "results/paper/made": "How the figures of the paper were made",
}


# Links to pages of the sources that are not in this folder, and so not in the site.
UPWARD = re.compile(r"\]\(((?:\.\./)+[^)#:]+\.md)[^)]*\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _adapt)


def _adapt(app: Sphinx, page: str, source: list[str]) -> None:
    if page in TITLES:
        source[0] = f"# {TITLES[page]}\n\n{source[0]}"

    def as_file(link: re.Match[str]) -> str:
        target = (HERE / page).parent / link[1]
        is_here = target.resolve().is_relative_to(HERE)
        return link[0] if is_here else f"](<path:{link[1]}>)"

    source[0] = UPWARD.sub(as_file, source[0])
