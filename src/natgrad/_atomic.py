"""Files that are written whole or not at all, and locks that a crash releases."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from natgrad.errors import CheckpointError


try:
    import fcntl
except ImportError:  # as on Windows, where files are not locked
    fcntl = None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file that replaces `path` once it is complete and on the disk.

    If the block raises, what was at `path` stays. Links are followed. Processes that
    write the same file take turns.
    """
    target = Path(os.path.realpath(path))
    # One name for each target: the next writer overwrites what a killed one left.
    # Without locks each process has its own.
    own = "" if fcntl else f".{os.getpid()}"
    draft = target.with_name(f".{target.name}{own}.tmp")
    try:
        # `realpath` leaves a link only if it leads to itself.
        if target.is_symlink() or (target.exists() and not target.is_file()):
            raise OSError(errno.EINVAL, "there is something that is not a file")
        with open(_locked(draft, is_patient=True), "wb") as file:
            try:
                os.ftruncate(file.fileno(), 0)
                yield draft
                os.fsync(file.fileno())
                if fcntl is None:  # an open file cannot be renamed there
                    file.close()
                os.replace(draft, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    draft.unlink()
                raise
    except OSError as error:
        why = error.strerror or str(error)
        kept = "; it is unchanged" if target.exists() else ""
        what = f"{path} could not be written: {why}{kept}"
        raise CheckpointError(error.errno, what) from error
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames within a folder survive a power cut."""
    if os.name == "nt":
        return
    # The renames have happened, and not every file system can sync a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def lock(path: Path) -> IO[str]:
    """An open file that locks the folder it is in, until it is closed.

    The system releases the lock when the process ends, however it ends.
    """
    try:
        file = os.fdopen(_locked(path, is_patient=False), "r+")
    except BlockingIOError as error:
        holder = ""
        with contextlib.suppress(FileNotFoundError):  # released meanwhile
            holder = path.read_text()
        holder = holder or "another process"
        raise CheckpointError(f"{path.parent} is in use by {holder}") from error
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file


def unlock(file: IO[str], path: Path) -> None:
    """Releases a lock and removes its file."""
    if os.name == "nt":  # an open file cannot be removed there
        file.close()
    try:
        # Before it is closed: whoever opens it from now on opens another one.
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        file.close()


def _locked(path: Path, is_patient: bool) -> int:
    """A descriptor of a file that no other process has locked.

    If another has, a patient caller waits. It also does without a lock where the file
    system has none.
    """
    flags = os.O_RDWR | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            if fcntl is not None and is_patient:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            elif fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # Otherwise the process that held it has renamed or removed it.
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
