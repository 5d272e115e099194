"""What natgrad raises and warns of."""


class NatgradError(Exception):
    """Any error of natgrad's own."""


class InputError(NatgradError, ValueError):
    """An argument or a table that cannot be used as it is."""


class FitError(NatgradError, RuntimeError):
    """A computation that could not be carried through."""


class InputWarning(UserWarning):
    """Something about the data was mended, and is said."""


class NumericalWarning(UserWarning):
    """A matrix was near singular, and something was done about it."""
