"""Every measured number on a page for users is in a committed result.

`docs/numbers.toml` lists these numbers with their source. A number with a unit that is
not measured (a setting, a definition, an example) is listed there, too, so that a new
one on a page needs a decision.
"""

import re
import tomllib
from pathlib import Path

import pytest


pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
LIST = tomllib.loads((ROOT / "docs" / "numbers.toml").read_text("utf-8"))
FOLDERS = ("docs", "docs/tutorials", "docs/howto", "docs/explanation")
PAGES = [
    ROOT / "README.md",
    *(page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))),
]
WORDS = {"half": 0.5, "twice": 2} | {
    word: number
    for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight"), 2
    )
}
WORDS |= {"ten": 10, "twenty": 20}
NUMBER = rf"(?:\d[\d,]*(?:\.\d+)?|\b(?:{'|'.join(WORDS)})\b)"
UNIT = "nats?|s|seconds?|minutes?|hours?|ms|times|[kMG]i?B|of \\d+|rows per second"
WITH_UNIT = re.compile(
    rf"(?<![\w.^]){NUMBER}(?: to {NUMBER})?(?: ?%| (?:CPU )?(?:{UNIT})\b)"
    rf"|factors? of (?:about )?{NUMBER}|about (?:twice|half)|(?:twice|half) as"
)


def prose(page: Path) -> str:
    """A page without code, formulas and the targets of its links, in one line."""
    text = page.read_text("utf-8")
    text = re.sub(r"^(```+|:::+|~~~+).*?^\1", "", text, flags=re.S | re.M)
    text = re.sub(r"^    .*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)|\$[^$]*\$|https?://\S+", "]", text)
    return " ".join(text.split())


def numbers(text: str) -> list[float]:
    found = re.findall(NUMBER, text.replace("−", "-"))
    return [WORDS.get(word) or float(word.replace(",", "")) for word in found]


def is_rounded(stated: float, text: str, measured: list[float], slack: float) -> bool:
    decimals = max((len(n) for n in re.findall(r"\.(\d+)", text)), default=0)
    unit = 0.5 * 10.0**-decimals + 1e-12
    return any(abs(stated - m) <= max(unit, slack * abs(m)) for m in measured)


@pytest.mark.parametrize("entry", LIST["measured"], ids=lambda it: it["text"])
def test_a_measured_number_is_in_a_committed_result(entry):
    assert entry["text"] in prose(ROOT / entry["page"]), "the page has other words"
    source = " ".join((ROOT / entry["source"]).read_text("utf-8").split())
    assert entry["evidence"] in source, "the result has another number"
    factor, slack = entry.get("factor", 1.0), entry.get("slack", 0.0)
    measured = [factor * number for number in numbers(entry["evidence"])]
    stated = numbers(entry.get("number", entry["text"]))
    assert stated
    for number in stated:
        assert is_rounded(number, entry["text"], measured, slack), (stated, measured)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_with_a_unit_is_listed(page):
    name, text = page.relative_to(ROOT).as_posix(), prose(page)
    known = [it["text"] for it in LIST["measured"] if it["page"] == name]
    known += LIST["everywhere"]["stated"] + LIST["stated"].get(name, [])
    covered = [
        match.span()
        for fragment in known
        for match in re.finditer(re.escape(fragment), text)
    ]
    for match in WITH_UNIT.finditer(text):
        is_known = any(a <= match.start() and match.end() <= b for a, b in covered)
        around = text[max(0, match.start() - 40) : match.end() + 40]
        assert is_known, f"not in docs/numbers.toml: {match[0]!r} in '…{around}…'"


@pytest.mark.parametrize("name", LIST["stated"])
def test_what_is_listed_is_on_its_page(name):
    text = prose(ROOT / name)
    for fragment in LIST["stated"][name]:
        assert fragment in text, f"{name} no longer has {fragment!r}"
