from collections.abc import Callable
from typing import Any

from ray.train import RunConfig, ScalingConfig
from ray.train.backend import BackendConfig

class DataParallelTrainer:
    def __init__(
        self,
        train_loop_per_worker: Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any],
        backend_config: BackendConfig,
        scaling_config: ScalingConfig,
        run_config: RunConfig,
    ) -> None: ...
    def fit(self) -> Any: ...
