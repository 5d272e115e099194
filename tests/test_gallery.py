"""The gallery: what is committed of it belongs together."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image


pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"


def load_make() -> Any:
    spec = importlib.util.spec_from_file_location("make", SCRIPTS / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = load_make()
each = pytest.mark.parametrize("name", make.NAMES)


def test_every_script_is_in_one_section():
    scripts = {path.stem for path in SCRIPTS.glob("*.py")} - {"make"}
    assert sorted(make.NAMES) == sorted(scripts)
    assert len(scripts) >= 12


def test_the_index_is_the_one_that_would_be_written():
    assert (PAGES / "index.md").read_text("utf-8") == make.index()


def test_no_page_or_picture_is_without_a_script():
    made = {path for path in PAGES.rglob("*") if path.is_file()}
    known = {PAGES / "index.md"}
    for name in make.NAMES:
        known |= {PAGES / f"{name}.md", PAGES / make.picture(name)}
        known |= {PAGES / "small" / f"{name}.png"}
    assert made == known


@each
def test_a_page_has_the_question_the_picture_and_the_script(name):
    text = (PAGES / f"{name}.md").read_text("utf-8")
    question, words = make.docstring(name)
    assert text.startswith(f"# {question}\n\n{words}\n")
    assert question.endswith("?")
    assert f"]({make.picture(name)})" in text
    (target,) = re.findall(r"```\{literalinclude\} (.+)", text)
    assert (PAGES / target).resolve() == SCRIPTS / f"{name}.py"


@each
def test_a_page_stores_numbers_that_a_check_compares(name):
    stored = make.stored(name)
    assert make.NUMBER.findall(stored)
    assert make.difference(name, stored, stored) == ""
    grown = make.NUMBER.sub(lambda found: str(2 * float(found[0]) + 1), stored)
    assert make.difference(name, grown, stored) != ""
    assert make.difference(name, stored + " and more", stored) != ""


@each
def test_a_script_is_short_and_saves_where_it_is_told(name):
    text = make.source(name)
    assert 30 <= len(text.splitlines()) <= 100
    assert 'parser.add_argument("--out", type=Path' in text


@each
def test_pictures_can_be_read_and_are_small(name):
    path = PAGES / make.picture(name)
    with Image.open(path) as image:
        image.load()
        assert min(image.size) >= 250
        colours = image.convert("L").getextrema()
        assert colours[1] - colours[0] > 100  # not blank
    assert path.stat().st_size < 80_000
    with Image.open(PAGES / "small" / f"{name}.png") as image:
        assert image.size == (320, 210)


def test_all_pictures_together_are_below_two_megabytes():
    assert sum(path.stat().st_size for path in PAGES.rglob("*.png")) < 2e6
