"""What natgrad raises and warns of."""

from typing import Any


class NatgradError(Exception):
    """Any error of natgrad's own."""


class InputError(NatgradError, ValueError):
    """An argument or a table that cannot be used as it is."""


class FitError(NatgradError, RuntimeError):
    """A computation that failed.

    If it was a run of training, `params` and `history` are what it had until then.
    """

    params: Any = None
    history: Any = None


class Terminated(BaseException):
    """SIGTERM ended a run, after its last checkpoint was saved if it has any.

    It is no `Exception`, so that a search over models does not catch it and continue.
    `params` and `history` are the result until then.
    """

    params: Any = None
    history: Any = None


class PeerError(NatgradError, RuntimeError):
    """Another process of the same run was lost, which ends the run."""


class CheckpointError(NatgradError, OSError):
    """A file or checkpoint that could not be written, or no checkpoint that is valid.

    If it was the last of a run, `params` and `history` are the result of the run.
    """

    params: Any = None
    history: Any = None

    def __str__(self) -> str:
        return self.strerror or super().__str__()  # without "[Errno 28]"


class CheckpointWarning(UserWarning):
    """A checkpoint was damaged or could not be written, and the run continues."""


class InputWarning(UserWarning):
    """Something about the data was repaired or is doubtful."""


class NumericalWarning(UserWarning):
    """A matrix was near singular, and something was done about it."""


class CorruptFileError(NatgradError, OSError):
    """A file that is damaged, or is not what it says it is."""


class IncompatibleFileError(NatgradError, ValueError):
    """A sound file that this natgrad, as it is set up, cannot use."""
