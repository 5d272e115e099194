"""The benchmark page says what the committed results say."""

import sys
from pathlib import Path

import numpy as np
import pytest


ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import page  # noqa: E402
import tables  # noqa: E402


ROWS = tables.read()
BLOCKS = page.blocks(ROWS)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_page_is_made_from_the_results(name):
    text = page.PAGE.read_text()
    assert page.filled(text, name, BLOCKS[name]) == text, (
        f"{name} is not what the results say: python benchmarks/run.py page"
    )


def test_the_appendix_is_made_from_the_results():
    assert page.APPENDIX.read_text() == page.appendix(ROWS)


def test_a_run_is_there_once_and_is_one_that_is_wanted():
    keys = [(row["set"], row["method"], int(row["split"])) for row in ROWS]
    assert len(keys) == len(set(keys))
    for name, method, split in keys:
        assert method in tables.TITLES
        assert split in tables.ALL[name].splits


def row(method, split, log_density):
    given = {"set": "energy", "method": method, "split": str(split)}
    return given | {"log_density": log_density, "note": ""}


def rows_of(**log_densities):
    return [
        row(method, 20 + place, value)
        for method, values in log_densities.items()
        for place, value in enumerate(values)
    ]


def test_methods_are_compared_on_the_same_splits():
    others = {"lightgbm": ["-3"] * 3, "linear": ["-4"] * 3}
    rows = rows_of(natgrad=["-1", "-2", "-9"], boosting=["-2", "-2"], **others)
    found = page.standing(rows, "energy")
    assert found.splits == [20, 21]
    assert found.means["natgrad"] == -1.5
    assert found.best == "natgrad"


def test_one_standard_error_of_the_difference_is_near():
    others = {"lightgbm": ["-9"] * 2, "linear": ["-9"] * 2}
    near = rows_of(natgrad=["-1.0", "-1.3"], boosting=["-1.1", "-1.0"], **others)
    found = page.standing(near, "energy")
    assert found.best == "boosting"
    assert page.is_near(found, "natgrad")
    far = rows_of(natgrad=["-1.2", "-1.3"], boosting=["-1.0", "-1.0"], **others)
    assert not page.is_near(page.standing(far, "energy"), "natgrad")


def test_a_failure_is_not_ranked():
    others = {"lightgbm": ["-3"] * 2, "linear": ["-4"] * 2}
    rows = rows_of(natgrad=["-1", "-2"], boosting=["0", ""], **others)
    assert "boosting" not in page.standing(rows, "energy").means
    assert (
        page.cell(rows, "energy", "boosting", "log_density", [20, 21]) == "failed 1/2"
    )


def test_a_method_with_fewer_splits_that_is_ahead_leaves_the_set_uncounted():
    others = {"boosting": ["-3"] * 2, "lightgbm": ["-3"] * 2, "linear": ["-4"] * 2}
    rows = rows_of(natgrad=["-1", "-2"], gpflow=["-0.5"], **others)
    assert page.overtaking(rows, "energy") == ["gpflow"]
    assert page.counted(rows)["unsure"] == ["energy"]


def test_the_time_to_a_quality_is_that_of_the_first_point_that_has_it():
    curve = [(1.0, -3.0), (2.0, -1.0), (3.0, -2.0), (4.0, -1.0), (5.0, -1.0)]
    assert page.time_to(curve, -1.0) == 4.0  # the one at 2 does not last
    assert page.time_to(curve, -0.5) == np.inf


def test_coverage_counts_the_rows_inside_the_central_interval():
    cdf = np.linspace(0.005, 0.995, 100)
    answer = {"cdf": cdf, "cdf_below": cdf, "mean": cdf, "log_density": cdf}
    scores = tables.score(answer, cdf)
    assert scores["coverage_50"] == pytest.approx(0.5)
    assert scores["coverage_90"] == pytest.approx(0.9)
    assert scores["calibration"] == pytest.approx(0.0, abs=1e-9)
    assert scores["error"] == 0
