"""The real packages, writing to a folder."""

import pytest

from natgrad.train import MLflow, Record, TensorBoard


RECORDS = [Record(step=step, seconds=step / 10, objective=-1 / step) for step in (1, 2)]


def test_tensorboard_gets_every_number(tmp_path):
    callback = TensorBoard(tmp_path)
    for record in RECORDS:
        callback(record, None)
    callback.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    from tensorboardX.proto.event_pb2 import Event

    seen, data = [], path.read_bytes()
    while data:  # a length, its checksum, the event, its checksum
        length = int.from_bytes(data[:8], "little")
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        seen += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
    assert (2, "objective", -0.5) in seen and (1, "refused", 0.0) in seen


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_number(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    callback = MLflow("a test", tmp_path.as_uri())
    for record in RECORDS:
        callback(record, None)
    callback.close()
    history = callback.client.get_metric_history(callback.run_id, "objective")
    assert [(metric.step, metric.value) for metric in history] == [(1, -1), (2, -0.5)]
    assert callback.client.get_run(callback.run_id).info.status == "FINISHED"
