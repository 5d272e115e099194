"""The page says what the committed results say, and a comparison is a fair one."""

import sys
from pathlib import Path


sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import numpyro_tables as tables  # noqa: E402


def row(model, method, step, elbo, cpu="1.0"):
    given = {"model": model, "method": method, "latents": "2", "compile": "1"}
    return given | {"rate": "", "step": str(step), "cpu": cpu, "elbo": str(elbo)}


def test_the_tables_of_the_page_are_made_from_the_results():
    page = tables.PAGE.read_text("utf-8")
    assert tables.written(page) == page, "python benchmarks/numpyro_models.py table"


def test_every_run_is_there_once():
    keys = ("model", "method", "rate", "step")
    rows = [tuple(each[key] for key in keys) for each in tables.read("runs")]
    assert len(rows) == len(set(rows))


def test_a_model_without_its_rival_does_not_count_and_a_failure_is_no_win():
    rival = "AutoMultivariateNormal"
    rows = [
        row("both", "natgrad", 5, -1.0),
        row("both", rival, 90, -1.05, "0.5"),
        row("alone", "natgrad", 5, -1.0),
        row("failed", "natgrad", 5, -9.0),
        row("failed", rival, 90, -1.0),
        row("ahead", "natgrad", 5, -1.0),
        row("ahead", rival, 90, -3.0),
    ]
    assert tables.standing(rows, rival) == (2, 1, 3)
    assert tables.cell(tables.reached(rows, "failed", "natgrad")) == "8.0 short"
    assert tables.cell(tables.reached(rows, "alone", rival)) == "not run"
