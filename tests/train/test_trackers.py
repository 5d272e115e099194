"""The recipes of the page on training, with the real packages, writing to a folder."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from natgrad.train import Record


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "training.md"
RECORDS = [Record(step=step, seconds=step / 10, objective=-1 / step) for step in (1, 2)]


def run_recipe(package):
    """The block of the page that imports a package, with a fit of two records."""

    def fit(*_, callbacks, **__):
        for record in RECORDS:
            for callback in callbacks:
                callback(record, None)

    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if block.startswith(package)]
    exec(code, {"gp": SimpleNamespace(fit=fit), "model": None, "x": None, "y": None})


@pytest.mark.nightly
def test_tensorboard_gets_every_number(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    run_recipe("from tensorboardX")
    (path,) = tmp_path.glob("runs/one/events.out.tfevents.*")
    from tensorboardX.proto.event_pb2 import Event

    seen, data = [], path.read_bytes()
    while data:  # a length, its checksum, the event, its checksum
        length = int.from_bytes(data[:8], "little")
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        seen += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
    assert (2, "objective", -0.5) in seen and (1, "refused", 0.0) in seen


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_number(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    run_recipe("import mlflow")
    run = mlflow.last_active_run()
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "objective")
    assert [(metric.step, metric.value) for metric in history] == [(1, -1), (2, -0.5)]
    assert run.info.status == "FINISHED"
