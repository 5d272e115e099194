from typing import Any

class Backend:
    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None: ...

class BackendConfig:
    @property
    def backend_cls(self) -> type[Backend]: ...
