"""Settings of the whole process that several threads may need at the same time."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class ProcessSetting:
    """A setting that the first thread to enter makes, and the last to leave undoes."""

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]):
        self._enter, self._leave = enter, leave
        self._lock = threading.Lock()
        self._users = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._enter()
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._leave()
