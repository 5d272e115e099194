"""Laws of the table of claims, on the results that are stored beside the docs."""

import re
from pathlib import Path

import pytest

import paper
from paper import claims
from paper.claims import batches, directions, past
from paper.claims.base import CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE
from tests.variants import variants


PAPER = Path(__file__).parents[2] / "docs" / "results" / "paper"


@pytest.fixture(scope="module")
def results():
    return claims.tables(PAPER)


def test_the_page_says_what_the_results_say():
    assert (PAPER / "claims.md").read_text("utf-8") == claims.table(PAPER)


def test_the_page_of_figures_counts_the_verdicts(results):
    found = [claims.checked(claim, results).verdict for claim in claims.CLAIMS]
    kinds = (CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE)
    yes, no, open_ = (found.count(kind) for kind in kinds)
    text = " ".join((PAPER.parent / "paper.md").read_text("utf-8").split())
    words = f"{len(found)} claims, we confirm {yes} and do not confirm {no}; {open_} "
    assert f"{words}cannot be tested" in text


def test_every_claim_is_decided():
    lines = (PAPER / "claims.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line[2:3].isdigit()]
    verdicts = [row.split(" | ")[1] for row in rows[: len(claims.CLAIMS)]]
    assert len(verdicts) >= 20
    assert set(verdicts) <= {CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE}
    # What cannot be tested is not hidden among what can.
    for claim, verdict in zip(claims.CLAIMS, verdicts, strict=True):
        assert claim.rule or verdict == NOT_TESTABLE


def test_results_are_small_and_all_pictures_are_there():
    assert sum(path.stat().st_size for path in PAPER.glob("*.parquet")) < 20e6
    text = (PAPER.parent / "paper.md").read_text("utf-8")
    named = set(re.findall(r"paper/([\w-]+\.png)", text))
    assert named == {path.name for path in PAPER.glob("*.png")}
    assert len(named) == 13


# All have the same checks, and some have pictures of many panels.
@pytest.mark.parametrize("name", variants(paper.FIGURES, ["fig4"]))
def test_no_run_of_a_figure_is_missing_and_its_pictures_are_those_shown(name, tmp_path):
    store = paper.store_of(name, PAPER)
    configs = list(paper.module(name).configs(False, store))
    assert configs and not store.missing(configs)
    drawn = paper.draw(name, store.of(configs), tmp_path)
    assert {path.name for path in drawn} == {p.name for p in PAPER.glob(f"{name}*.png")}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_without_results_it_says_what_to_run(tmp_path):
    table = claims.table(tmp_path)
    assert "python -m paper fig2 first" in table and "| not run |" in table


# Results that say otherwise are believed.


def swapped(table, one, other):
    return table.assign(method=table.method.replace({one: other, other: one}))


def test_methods_that_change_places_change_the_verdicts(results):
    fig2 = {"fig2": swapped(results["fig2"], "NGD", "GD")}
    assert directions.faster(results).verdict == CONFIRMED
    for check in (directions.faster, directions.conjugate, directions.grows_to_one):
        assert check(results).verdict == CONFIRMED
        assert check(fig2).verdict == NOT_CONFIRMED
    turned = {name: swapped(results[name], "NGD", "Adam") for name in ("fig5", "fig7")}
    for check in (batches.naval("ordinal"), batches.mnist):
        assert check(results).verdict == CONFIRMED
        assert check(turned).verdict == NOT_CONFIRMED
    fig3 = results["fig3"]
    behind = fig3.assign(bound=fig3.bound.where(fig3.method != "NGD", -10.0))
    assert batches.realised(results).verdict == CONFIRMED
    ahead = fig3.assign(bound=fig3.bound + 10.0 * (fig3.method == "GD"))
    for other in (behind, ahead):
        assert batches.realised({"fig3": other}).verdict == NOT_CONFIRMED
    lost = fig3.assign(bound=fig3.bound.where(fig3.method != "guarded", -10.0))
    assert past.guarded_fixed({"fig3": lost}).verdict == NOT_CONFIRMED


def test_one_step_that_failed_is_seen(results):
    fig5 = results["fig5"]
    is_one = (fig5.method == "guarded") & (fig5.iteration == fig5.iteration.max())
    failed = results | {"fig5": fig5.assign(not_finite=is_one.astype(int))}
    assert past.guarded_never_fails(results).verdict == CONFIRMED
    assert past.guarded_never_fails(failed).verdict == NOT_CONFIRMED
