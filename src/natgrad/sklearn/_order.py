"""The order of classes: what a column knows of it, and what has to be given."""

from typing import Any, NamedTuple, cast

import numpy as np

from natgrad.errors import InputError


class Order(NamedTuple):
    """Classes whose order is known, the lowest first."""

    classes: Any


def order_of(y: Any) -> Order | None:
    """That of a pandas column of ordered categories."""
    dtype = getattr(y, "dtype", None)
    if not getattr(dtype, "ordered", False):
        return None
    return Order(cast(Any, dtype).categories.to_numpy())


def ordered(classes: np.ndarray, order: Order | None) -> np.ndarray:
    """Sorted classes in the order that is known, or in that of numbers."""
    if order is not None:
        given = np.asarray(order.classes)
        if len(given) != len(classes):
            twice = next(each for each in classes.tolist() if (given == each).sum() > 1)
            raise InputError(
                f"categories has {twice!r} more than once; it should have each once"
            )
        return given
    is_text = any(isinstance(each, str) for each in classes.tolist())
    if is_text and len(classes) > 2:
        guess = classes.tolist()[:10]
        more = ", ..." if len(classes) > 10 else ""
        raise InputError(
            f"y has {len(classes)} strings for classes, whose order is not known; the "
            f"alphabet would give {' < '.join(map(repr, guess))}{more}: give their "
            "order, the lowest first, as GPOrdinal(categories=[...]), or make y a "
            "column of ordered categories or of numbers"
        )
    return classes
