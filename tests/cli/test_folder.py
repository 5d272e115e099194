"""What the command line makes of what a folder has of a run."""

import dataclasses
import warnings

import numpy as np
import pytest

from natgrad import _container as container
from natgrad._cli import training
from natgrad._cli.common import table
from natgrad._cli.folder import CHECKPOINT, MODEL, REPLACEMENT, RUN, current
from natgrad._cli.models import open_model
from natgrad._config import Run, dumps
from natgrad.data._prepare import prepare
from natgrad.errors import CorruptFileError
from natgrad.sklearn import GPRegressor


@pytest.mark.parametrize("has_model", [False, True])
def test_a_run_that_was_interrupted_goes_on_and_one_that_ended_does_not(
    has_model, tmp_path, monkeypatch, capsys
):
    run, out = Run(str(tmp_path / "a.csv"), "y"), tmp_path / "out"
    continued = []
    monkeypatch.setattr(
        training, "_continue", lambda *given: continued.append(given) or 0
    )
    (out / CHECKPOINT).mkdir(parents=True)
    (out / RUN).write_text(dumps(run))
    if has_model:
        (out / MODEL).touch()
    train = lambda: training.train(
        run, out, is_forced=False, is_resumed=True, is_json=False
    )
    assert train() == 0 and continued == [(out, out, False, True)]
    (out / MODEL).touch()
    (out / CHECKPOINT).rmdir()
    assert train() == 0 and len(continued) == 1
    assert "has a model, and its run has ended" in capsys.readouterr().err


def test_a_model_that_is_not_what_it_says_is_refused(tmp_path):
    x = np.linspace(-1, 1, 12)[:, None]
    small = GPRegressor("gaussian", n_inducing=3, max_iter=1, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few rows and steps
        small.fit(x, x[:, 0]).save(tmp_path / "saved")
    document, arrays = container.read(tmp_path / "saved")
    good = {"target": "price", "likelihood": "student-t", "rows": 40}
    for change in (
        {},
        {"target": ["price"]},
        {"rows": "all"},
        {"likelihood": "softmax"},
    ):
        document["metadata"]["user"] = good | change
        container.write(tmp_path / "model", document, arrays)
        if not change:
            assert open_model(tmp_path / "model").target == "price"
            continue
        with pytest.raises(CorruptFileError, match=str(tmp_path)):
            open_model(tmp_path / "model")


def test_what_is_said_has_no_control_characters():
    assert "\x1b" not in table({"target": "\x1b[31mprice"})
    assert table({"a": "b\nc"}) == "a  b\nc"


@pytest.mark.parametrize(
    ("states", "where", "is_resumed"),
    [
        ({}, "", False),
        ({"": "model"}, REPLACEMENT, False),
        ({"": "same"}, "", True),
        ({"": "other"}, REPLACEMENT, False),
        ({"": "model", REPLACEMENT: "same"}, REPLACEMENT, True),
        ({"": "model", REPLACEMENT: "other"}, REPLACEMENT, False),
        ({"": "other", REPLACEMENT: "same"}, REPLACEMENT, True),
    ],
)
def test_force_continues_the_same_run_and_puts_no_other_in_the_place_of_a_model(
    states, where, is_resumed, tmp_path, monkeypatch
):
    (tmp_path / "a.csv").write_text("x,y\n1,0.5\n2,1.5\n3,7.25\n")
    run, out, seen = Run(str(tmp_path / "a.csv"), "y"), tmp_path / "out", []
    # How a run learns is not of interest here, but where it does.
    monkeypatch.setattr(
        training, "_fit", lambda _, __, out, ___: seen.append(current(out)) or 0
    )
    prepared = prepare(run).run
    other = dataclasses.replace(prepared, seed=7)
    for place, state in states.items():
        begun = prepared if state == "same" else other
        (out / place).mkdir(parents=True, exist_ok=True)
        (out / place / RUN).write_text(dumps(begun))
        if state == "model":
            (out / place / MODEL).touch()
        else:
            (out / place / CHECKPOINT / "5").mkdir(parents=True)
    training.train(run, out, is_forced=True, is_resumed=False, is_json=False)
    assert seen == [out / where]
    assert (out / where / CHECKPOINT / "5").exists() == is_resumed
    assert dumps(prepared) == (out / where / RUN).read_text()
    assert (out / MODEL).exists() == (states.get("") == "model")
    is_begun = states.get("") in ("same", "other") or not where
    assert (out / CHECKPOINT).exists() == is_begun
