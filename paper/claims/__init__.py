"""What the paper claims, what was measured, and what follows."""

from collections import Counter
from pathlib import Path

import paper
from paper.claims import batches, directions, gradients, past
from paper.claims.base import Claim, Found, Tables


CLAIMS = [*gradients.CLAIMS, *directions.CLAIMS, *batches.CLAIMS]
PAST = past.CLAIMS

HEAD = """\
| | verdict | {claim} | measured | confirmed if | where | evidence |
|---|---|---|---|---|---|---|
"""

CODE = "https://github.com/natgrad/natgrad/blob/main/paper"
EVIDENCE = {
    "fig1": "[figure 1](../paper.md#figure-1-gradients-and-their-paths)",
    "fig2": "[figure 2](../paper.md#figure-2-line-searches)",
    "fig3": "[figure 3](../paper.md#figure-3-fixed-hyperparameters)",
    "fig4": "[figure 4](../paper.md#figure-4-trained-hyperparameters)",
    "fig5": "[figure 5](../paper.md#figure-5-naval)",
    "fig6": "[figure 6](../paper.md#figure-6-larger-data-sets)",
    "fig7": "[figure 7](../paper.md#figure-7-mnist)",
    "readings": f"[readings.py]({CODE}/readings.py)",
    "text": f"[text.py]({CODE}/text.py)",
}
"""Where to see what a claim was decided on: on the site, or in the repository."""


def tables(folder: Path, is_quick: bool = False) -> Tables:
    """The results of the figures of which no run is missing."""
    found: Tables = {}
    for name in sorted({name for claim in (*CLAIMS, *PAST) for name in claim.figures}):
        store = paper.store_of(name, folder, is_quick)
        configs = list(paper.module(name).configs(is_quick, store))
        if not store.missing(configs):
            found[name] = store.of(configs)
    return found


def checked(claim: Claim, results: Tables) -> Found:
    """What the results say; if some are missing, what to run."""
    missing = [name for name in claim.figures if name not in results]
    if missing:
        return Found(f"python -m paper {missing[0]} first", "not run")
    return claim.check(results)


def table(folder: Path, is_quick: bool = False) -> str:
    """All claims as Markdown; of quick forms, those that these can decide on.

    The verdict comes first, so that it is in sight on a narrow screen.
    """
    results = tables(folder, is_quick)
    parts = {"": ("the paper says", CLAIMS), "Beyond the paper": ("claim", PAST)}
    lines, number = [], 0
    for title, (head, claims) in parts.items():
        shown = [claim for claim in claims if claim.is_quick or not is_quick]
        if not shown:
            continue
        decided = [checked(claim, results) for claim in shown]
        lines += [f"\n## {title}\n"] if title else []
        lines += [summary(decided), "", HEAD.format(claim=head).rstrip()]
        for claim, (measured, verdict) in zip(shown, decided, strict=True):
            number += 1
            seen = ", ".join(EVIDENCE[name] for name in claim.figures)
            cells = (number, verdict, claim.text, measured, claim.rule, claim.where)
            cells = (*cells, seen or f"[gradients.py]({CODE}/claims/gradients.py)")
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def summary(decided: list[Found]) -> str:
    """How many claims have each verdict."""
    counts = Counter(found.verdict.strip("*") for found in decided)
    named = [f"{number} {verdict}" for verdict, number in counts.most_common()]
    return f"{len(decided)} claims: {', '.join(named)}."
