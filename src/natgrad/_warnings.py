"""Warnings that name the line of the user's code."""

import sys
import types
import warnings


LIBRARIES = (
    "natgrad",
    "equinox",
    "jax",
    "jaxtyping",
    "beartype",
    "sklearn",
    "joblib",
    "contextlib",
    "functools",
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
