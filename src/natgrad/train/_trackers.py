"""Records of a run sent to other tools: callbacks for `fit`."""

from pathlib import Path
from typing import Any

from natgrad.train._history import Record


class TensorBoard:
    """A callback that writes each number of a record as a TensorBoard scalar.

    It writes to `folder` immediately, and a resumed run continues there.

    Raises:
        ImportError: If tensorboardX is not installed.

    >>> tracker = natgrad.train.TensorBoard("runs")
    >>> options = {"steps": 3, "callbacks": [tracker], "progress": False}
    >>> fitted = gp.fit(model, (x, y), **options)
    >>> tracker.close()
    """

    def __init__(self, folder: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                'TensorBoard needs tensorboardX: pip install "natgrad[tensorboard]"'
            ) from error
        self.writer = SummaryWriter(str(folder), flush_secs=5)

    def __call__(self, record: Record, params: Any) -> None:
        for name, value in record.numbers().items():
            if name != "step":
                self.writer.add_scalar(name, value, record.step)

    def close(self) -> None:
        """Writes what is not written yet."""
        self.writer.close()


class MLflow:
    """A callback that logs each number of a record as a metric of a new MLflow run.

    The run belongs to `experiment`, on the tracking server at `uri`.

    Raises:
        ImportError: If mlflow-skinny is not installed.

    >>> tracker = natgrad.train.MLflow("houses")  # doctest: +SKIP
    >>> fitted = gp.fit(model, (x, y), callbacks=[tracker])  # doctest: +SKIP
    >>> tracker.close()  # doctest: +SKIP
    """

    def __init__(self, experiment: str = "natgrad", uri: str | None = None):
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError(
                'MLflow needs mlflow-skinny: pip install "natgrad[mlflow]"'
            ) from error
        self.client = MlflowClient(uri)
        found = self.client.get_experiment_by_name(experiment)
        number = (
            found.experiment_id if found else self.client.create_experiment(experiment)
        )
        self.run_id = self.client.create_run(number).info.run_id

    def __call__(self, record: Record, params: Any) -> None:
        for name, value in record.numbers().items():
            if name != "step":
                self.client.log_metric(self.run_id, name, value, step=record.step)

    def close(self) -> None:
        """Marks the run as finished."""
        self.client.set_terminated(self.run_id)
