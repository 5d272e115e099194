"""Counts the prose of the documentation, and finds the words it avoids.

    python docs/prose.py                     every page, and all of them together
    python docs/prose.py docs/howto/cli.md   some pages

Code, formulas, tables and headings are not prose; a piece of inline code or a formula
counts as one word. "You" counts with "your", "yours" and "yourself". A passive is a
form of "be", any adverbs, and a participle (a word in -ed, or one of IRREGULAR). A
sentence ends at ".", "!" or "?" before a space, and where its paragraph, list item or
card ends. Avoided words count in tables and headings too. The command fails if it
finds any.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


ROOT = Path(__file__).resolve().parents[1]
LONG = 25  # words of a sentence

# The project's list: what not to write, and what to write instead.
AVOIDED = {
    r"lakes?": "data set",
    r"beside": "compared with; next to",
    r"said|told": "prints, warns or raises; given",
    r"mend(?:s|ed|ing)?": "fix; troubleshoot",
    r"foretells?|foretold": "predict",
    r"roads?": "path, way",
    r"fellows?": "counterpart",
    r"strangers?": "newcomer; untrusted",
    r"without a word": "silently; without a warning",
    # Only the noun: a curve looks smooth, and a user looks at it.
    r"(?:the|these|those|its|of|by|after|between|without|all|more|fewer|few|many|later"
    r"|two|three|four|five|ten|\d+) looks": "evaluations",
    r"in peace": "undisturbed; uninterrupted",
    r"by night": "nightly; unattended",
    r"laws": "properties; checks",
    r"(?:find|finds|found|finding) out": "detects; learns; compares",
    r"(?:go|goes|going|went|gone) on": "continue; resume",
    r"(?:leave|leaves|left) for": "export to",
    r"(?:has|have|had) arrived": "has converged; is at",
    r"of no use": "useless; does not help",
    r"if nothing is said": "by default",
    r"datum": "row",
    r"climbs? the evidence": "increase the ELBO",
}
# A test states a law, so these pages, which are about tests, may call it one.
ALLOWED = {"laws": ("CONTRIBUTING.md", "docs/development/")}

IRREGULAR = (
    "begun|bent|bought|bound|broken|brought|built|cast|caught|chosen|cut|done|drawn"
    "|driven|fed|felt|fit|forgotten|found|frozen|given|gone|ground|grown|held|hidden|hit"
    "|kept|known|laid|learnt|led|left|lent|lost|made|meant|met|paid|put|read|rerun"
    "|rewritten|run|said|seen|sent|set|shown|shut|spent|split|spread|stood|swept|taken"
    "|taught|thought|thrown|told|understood|won|worn|written"
)
ADVERBS = "not|never|always|also|only|then|thus|still|often|now|all|both|so|too|\\w+ly"
NOT_PARTICIPLES = "need|indeed|speed|seed|feed|hundred|red|embed|exceed|proceed|biased"
PASSIVE = re.compile(
    r"\b(?:am|is|are|was|were|be|been|being|isn't|aren't|wasn't|weren't)\s+"
    rf"(?:(?:{ADVERBS})\s+)*"
    rf"(?!(?:{NOT_PARTICIPLES})\b)(?:\w+ed|{IRREGULAR})\b",
    re.IGNORECASE,
)
YOU = re.compile(r"\byou(?:rs?|rself)?\b", re.IGNORECASE)
WORD = re.compile(r"\w+(?:['’.,:/-]\w+)*")
SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)[.!?][\"')*_]*\s+")

# Directives that hold prose; the others hold code, options or names of files.
WITH_PROSE = re.compile(
    r"\{(?:grid|grid-item|grid-item-card|card|admonition|note|tip|hint|important|caution"
    r"|warning|attention|danger|error|seealso|dropdown|tab-set|tab-item|glossary|epigraph"
    r"|div|container|rubric)\}(.*)"
)
FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})\s*(.*)$")
INDENTED = re.compile(r" {4,}|\t")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
INLINE = re.compile(r"(?:\{[a-z:]+\})?(`+)(?!`).+?(?<!`)\1(?!`)|\$[^$\n]+\$")
IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)(?:\{[^}]*\})?")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?:<[^>]*>|[^)\s]*)(?:\s+\"[^\"]*\")?\)")
MARKUP = re.compile(r"\*\*|(?<!\w)[*_]|[*_](?!\w)|<[^<>\s][^<>]*>|^\s*>\s?", re.M)


class Line(NamedTuple):
    """A line of a page that is no code; `kind` is text, title, cell or gap."""

    number: int
    kind: str
    text: str


class Counts(NamedTuple):
    """What is counted of a page, or of many."""

    pages: int = 0
    words: int = 0
    you: int = 0
    passives: int = 0
    sentences: int = 0
    long: int = 0

    def row(self) -> str:
        thousands = max(self.words, 1) / 1000
        you, passives = self.you / thousands, self.passives / thousands
        mean = self.words / max(self.sentences, 1)
        return f"{self.words:8,d}{you:8.1f}{passives:10.1f}{mean:8.1f}{self.long:7d}"


HEADER = f"{'words':>8}{'you/k':>8}{'passive/k':>10}{'mean':>8}{'>25':>7}"


def pages() -> list[Path]:
    """The pages of the site that are not generated, and those at the root."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    generated = {"_build", "_ext", "modules"}
    return [
        *(path for path in found if not generated & set(path.relative_to(ROOT).parts)),
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
        ROOT / "SECURITY.md",
    ]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def lines(text: str) -> Iterator[Line]:
    """The lines of a page that are no code."""
    text = re.sub(r"<!--.*?-->|^\$\$.*?\$\$", _blank, text, flags=re.S | re.M)
    text = re.sub(r"\A---\n.*?^---$", _blank, text, flags=re.S | re.M)
    fences: list[str] = []  # those open, of which only the last may hold code
    is_code = is_option = is_list = is_indented = False
    is_after_gap = True
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if is_code:
            if fence and not fence[2] and fence[1].startswith(fences[-1]):
                is_code = False
                fences.pop()
            yield Line(number, "gap", "")
            continue
        if fence and (fence[2] or not fences or fence[1][0] != fences[-1][0]):
            fences.append(fence[1])
            directive = WITH_PROSE.match(fence[2])
            is_code, is_option = directive is None, True
            title = directive[1] if directive else ""
            kind, line = ("title", title) if title else ("gap", "")
        elif fence:
            fences.pop()
            kind, line = "gap", ""
        elif not line.strip():
            kind, is_option = "gap", False
        elif is_option and re.match(r"\s*:[\w-]+:", line):
            kind, line = "gap", ""
        elif re.match(r"#+ ", line):
            kind = "title"
        elif re.match(r"\s*\|", line):
            kind = "cell"
        else:
            kind, is_option = "text", False
            if LIST_ITEM.match(line):
                is_list = True
            elif is_after_gap and not INDENTED.match(line):
                is_list = False
            # Indented code begins after a gap, and ends with the indentation.
            is_indented = bool(INDENTED.match(line)) and (
                is_indented or (is_after_gap and not is_list and not fences)
            )
            if is_indented:
                kind, line = "gap", ""
        is_after_gap = kind != "text" and not is_indented
        yield Line(number, kind, line)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def plain(text: str) -> str:
    """Text as it is read: links by their words, code and formulas as one word."""
    text = INLINE.sub("X", text)
    return MARKUP.sub("", LINK.sub(r"\1", IMAGE.sub("", text)))


def paragraphs(text: str) -> Iterator[str]:
    """The prose of a page, each list item a paragraph of its own."""
    part: list[str] = []
    for line in [*lines(text), Line(0, "gap", "")]:
        if line.kind != "text" or LIST_ITEM.match(line.text):
            if part:
                yield plain("\n".join(part))
            part = []
        if line.kind == "text":
            part.append(LIST_ITEM.sub("", line.text))


def count(text: str) -> Counts:
    """The counts of one page."""
    prose = [part for part in paragraphs(text) if WORD.search(part)]
    sentences = [
        len(WORD.findall(sentence))
        for part in prose
        for sentence in SENTENCE.split(part)
        if WORD.search(sentence)
    ]
    every = "\n\n".join(prose)
    return Counts(
        1,
        sum(sentences),
        len(YOU.findall(every)),
        len(PASSIVE.findall(every)),
        len(sentences),
        sum(words > LONG for words in sentences),
    )


def avoided(text: str, page: str = "") -> list[str]:
    """Each avoided word of a page, with its line and what to write instead."""
    found = list(lines(text))
    shown = [
        IMAGE.sub(r"\1", line.text) if line.kind != "gap" else "" for line in found
    ]
    # Line by line, so that what is found has the number of its line.
    whole = "\n".join(LINK.sub(r"\1", INLINE.sub("X", line)) for line in shown)
    hits: list[tuple[int, str]] = []
    for pattern, instead in AVOIDED.items():
        if page.startswith(ALLOWED.get(pattern, ())):
            continue
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(rf"\b(?:{spaced})\b", whole, re.IGNORECASE):
            words = " ".join(match[0].split())
            number = whole.count("\n", 0, match.start()) + 1
            hits.append((number, f"{words!r}; write {instead}"))
    return [f"{page}:{number}: {hit}" for number, hit in sorted(hits)]


def main(chosen: list[Path]) -> int:
    total, problems = Counts(), []
    width = max(len(name(path)) for path in chosen) + 2
    print(f"{'page':{width}}{HEADER}")
    for path in chosen:
        text = path.read_text("utf-8")
        counts = count(text)
        total = Counts(*map(sum, zip(total, counts, strict=True)))
        problems += avoided(text, name(path))
        print(f"{name(path):{width}}{counts.row()}")
    print(f"{f'{total.pages} pages':{width}}{total.row()}")
    print(f"\n{len(problems)} avoided words")
    print("\n".join(problems))
    return len(problems)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, help="all, if none is given")
    given = [path.resolve() for path in parser.parse_args().pages]
    sys.exit(main(given or pages()) > 0)
