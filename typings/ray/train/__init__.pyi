class FailureConfig:
    def __init__(self, *, max_failures: int) -> None: ...

class RunConfig:
    def __init__(
        self, *, storage_path: str | None, failure_config: FailureConfig
    ) -> None: ...

class ScalingConfig:
    def __init__(
        self, *, num_workers: int, resources_per_worker: dict[str, float] | None
    ) -> None: ...
