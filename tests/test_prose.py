"""The counter of prose counts as it says, and no page has a word that we avoid."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest


pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]


def load_prose() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "docs" / "prose.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prose = load_prose()

PAGE = """\
# A title that does not count

You call `model.fit(x, y)`, which is given $a + b$. The mean is never computed here!

| told | a cell |
|---|---|

    indented code, which was told

- Your first item, e.g. this one
- a second

```python
x = told  # in peace
```

:::{note} The title of a card
:class: road

It is [read](../road.md) by nobody.
:::
"""


def test_only_prose_counts():
    counts = prose.count(PAGE)
    assert counts.sentences == 5
    assert counts.words == 7 + 6 + 6 + 2 + 5
    assert counts.you == 2
    assert counts.passives == 3
    assert counts.long == 0


def test_a_long_sentence_counts_as_one():
    assert prose.count("word " * 26 + ". " + "word " * 25 + ".").long == 1


def test_avoided_words_have_the_number_of_their_line():
    (hit,) = prose.avoided(PAGE, "page.md")
    assert hit.startswith("page.md:5: 'told'; write ")


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("A lake\nof rows goes\non.", 2),
        ("It looks like a curve, and looks at it.", 0),
        ("after three looks of a second", 1),
        ("besides, amended, broadly, flakes, untold", 0),
        ("`beside`, ![a road](road.png), [a way](fellow.md)", 1),
        ("## Mend a fit\n\n| in peace |", 2),
    ],
)
def test_avoided_words_are_whole_words_outside_code(text, hits):
    assert len(prose.avoided(text, "page.md")) == hits


def test_pages_about_tests_may_speak_of_laws():
    assert not prose.avoided("its laws", "CONTRIBUTING.md")
    assert prose.avoided("its laws", "docs/index.md")


@pytest.mark.parametrize("page", prose.pages(), ids=prose.name)
def test_a_page_has_no_word_that_we_avoid(page):
    assert prose.avoided(page.read_text("utf-8"), prose.name(page)) == []
