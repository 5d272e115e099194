"""Records of a run sent to other tools: callbacks for `fit`."""

from pathlib import Path
from typing import Any

from natgrad.train._history import Record


class TensorBoard:
    """Writes each number of a record as a scalar that TensorBoard shows.

    It writes to `folder` at once, and a resumed run continues there.
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
        """Writes what is left."""
        self.writer.close()


class MLflow:
    """Logs each number of a record as a metric of a run of MLflow.

    It is a new run of the experiment, at `uri`, the address of a server.
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
