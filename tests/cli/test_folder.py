"""What the command line makes of what a folder has of a run."""

import pytest

from natgrad.cli import training
from natgrad.cli.folder import CHECKPOINT, MODEL, RUN
from natgrad.runs import Run, dumps


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
    assert train() == 0 and continued == [(out, out, False)]
    (out / MODEL).touch()
    (out / CHECKPOINT).rmdir()
    assert train() == 0 and len(continued) == 1
    assert "has a model, and its run has ended" in capsys.readouterr().err
