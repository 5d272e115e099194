"""What the command line makes of what a folder has of a run."""

from pathlib import Path

import pytest

from natgrad import envelope
from natgrad.cli import training
from natgrad.cli.common import table
from natgrad.cli.folder import CHECKPOINT, MODEL, RUN, open_model
from natgrad.errors import CorruptFileError
from natgrad.runs import Run, dumps
from tests.references.estimator_v1 import make


@pytest.mark.parametrize("has_model", [False, True])
def test_a_run_that_was_interrupted_goes_on_and_one_that_ended_does_not(
    has_model, tmp_path, monkeypatch, capsys
):
    run, out = Run(str(tmp_path / "a.csv"), "y"), tmp_path / "out"
    went_on = []
    monkeypatch.setattr(training, "_go_on", lambda *given: went_on.append(given) or 0)
    (out / CHECKPOINT).mkdir(parents=True)
    (out / RUN).write_text(dumps(run))
    if has_model:
        (out / MODEL).touch()
    train = lambda: training.train(
        run, out, is_forced=False, is_resumed=True, is_json=False
    )
    assert train() == 0 and went_on == [(out, False)]
    (out / MODEL).touch()
    (out / CHECKPOINT).rmdir()
    assert train() == 0 and len(went_on) == 1
    assert "has a model, and its run has ended" in capsys.readouterr().err


def test_a_model_that_is_not_what_it_says_is_refused(tmp_path):
    document, arrays = envelope.read(Path(make.__file__).parent / "regressor.ngm")
    columns = [{"kind": "number", "name": name} for name in ("age", "size")]
    good = {"schema": {"columns": columns, "nulls": "error"}, "rows": 40}
    good |= {"target": "price", "likelihood": "student-t"}
    for change in (
        {},
        {"target": ["price"]},
        {"rows": "all"},
        {"likelihood": "softmax"},
        {"schema": {"columns": columns[:1], "nulls": "error"}},
    ):
        document["metadata"]["user"] = good | change
        envelope.write(tmp_path / "model", document, arrays)
        if not change:
            assert open_model(tmp_path / "model").target == "price"
            continue
        with pytest.raises(CorruptFileError, match=str(tmp_path)):
            open_model(tmp_path / "model")


def test_what_is_said_has_no_control_characters():
    assert "\x1b" not in table({"target": "\x1b[31mprice"})
    assert table({"a": "b\nc"}) == "a  b\nc"
