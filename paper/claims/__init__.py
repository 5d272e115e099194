"""What the paper claims, what was measured, and what follows."""

from pathlib import Path

import paper
from paper.claims import batches, directions, gradients, past
from paper.claims.base import Claim, Found, Tables


CLAIMS = [*gradients.CLAIMS, *directions.CLAIMS, *batches.CLAIMS]
PAST = past.CLAIMS

HEAD = """\
| | where | the paper says | so if | measured | |
|---|---|---|---|---|---|
"""


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
    """All claims as Markdown; of quick forms, those that these can decide on."""
    results = tables(folder, is_quick)
    parts = {"": CLAIMS, "Beyond the paper": PAST}
    lines, number = [], 0
    for title, claims in parts.items():
        shown = [claim for claim in claims if claim.is_quick or not is_quick]
        lines += [f"\n## {title}\n"] if title and shown else []
        lines += [HEAD.rstrip()] if shown else []
        for claim in shown:
            number += 1
            measured, verdict = checked(claim, results)
            cells = (number, claim.where, claim.text, claim.rule, measured, verdict)
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"
