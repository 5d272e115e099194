"""The errors and warnings of natgrad."""

import sys
import types
import warnings
from typing import Any


__all__ = [
    "NatgradError",
    "InputError",
    "FitError",
    "Terminated",
    "CheckpointError",
    "CorruptFileError",
    "IncompatibleFileError",
    "InputWarning",
    "NumericalWarning",
    "CheckpointWarning",
]


class NatgradError(Exception):
    """The base class of natgrad's errors."""


class InputError(NatgradError, ValueError):
    """An argument or a table cannot be used as it is."""


class FitError(NatgradError, RuntimeError):
    """A computation failed.

    If it was a training run, `params` and `history` are its results until then.
    """

    params: Any = None
    history: Any = None


class Terminated(BaseException):
    """SIGTERM ended a run, after it saved its last checkpoint if it has any.

    It is no `Exception`, so that a search over models does not catch it and continue.
    `params` and `history` are the results until then.
    """

    params: Any = None
    history: Any = None


class PeerError(NatgradError, RuntimeError):
    """Another process of the same run was lost, which ends the run."""


class CheckpointError(NatgradError, OSError):
    """A file or checkpoint could not be written, or no checkpoint is valid.

    If it was the last of a run, `params` and `history` are the results of the run.
    """

    params: Any = None
    history: Any = None

    def __str__(self) -> str:
        return self.strerror or super().__str__()  # without "[Errno 28]"


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged or could not be written; the run continues."""


class InputWarning(UserWarning):
    """natgrad repaired something in the data, or doubts it."""


class NumericalWarning(UserWarning):
    """A matrix was near singular, and natgrad changed it."""


class CorruptFileError(NatgradError, OSError):
    """A file is damaged, or is not what it claims to be."""


class IncompatibleFileError(NatgradError, ValueError):
    """A file is valid, but this version or setup of natgrad cannot use it."""


# Warnings name the line of the user's code


LIBRARIES = (
    *("natgrad", "equinox", "jax", "jaxtyping", "beartype"),
    *("sklearn", "joblib", "contextlib", "functools"),
)
"""Packages whose frames may lie between the user's call and a warning."""


def warn(message: str, kind: type[Warning]) -> None:
    """Warns at the innermost line that is not in one of the `LIBRARIES`."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame) in LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)


def _package(frame: types.FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]
