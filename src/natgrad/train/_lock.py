"""The right to write to a folder, which one process has at a time."""

import contextlib
import os
import socket
from pathlib import Path
from typing import IO

from natgrad.errors import CheckpointError


def locked(path: Path) -> IO[str]:
    """An open file that is the right to write to the folder it is in.

    The system takes the right back when the process ends, however it ends.
    """
    while True:
        file = path.open("a+")
        try:
            if os.name != "nt":
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {socket.gethostname()}")
                file.flush()
                return file
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read() or "another process"
            file.close()
            raise CheckpointError(f"{path.parent} is in use by {holder}") from error
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        file.close()


def released(file: IO[str], path: Path) -> None:
    """Gives the right back, and removes the file."""
    if os.name == "nt":  # an open file cannot be removed there
        file.close()
    try:
        # Before it is closed: whoever opens it from now on opens another one.
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        file.close()


def _is_at(file: IO[str], path: Path) -> bool:
    """Else it was removed, by the process that held it, before it was ours."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
