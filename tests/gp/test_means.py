"""Mean functions."""

import jax.numpy as jnp
import numpy as np
import pytest

from natgrad.errors import InputError
from natgrad.gp import means
from tests.gp.kernels import assert_close, points


def test_means_are_one_value_a_row_and_a_latent():
    x, slope = jnp.asarray(points().x), np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert (means.Zero()(x) == jnp.zeros(6)).all()
    assert (means.Constant(2.0)(x) == jnp.full(6, 2.0)).all()
    assert (means.Constant([2, 3])(x) == jnp.asarray([[2.0] * 6, [3.0] * 6])).all()
    assert_close(means.Linear(slope[0], 0.5)(x), points().x @ slope[0] + 0.5)
    expected = (points().x @ slope.T + np.asarray([0.5, 1.5])).T
    assert_close(means.Linear(slope, [0.5, 1.5])(x), expected)
    narrow = jnp.asarray(x, np.float32)
    assert means.Zero()(narrow).dtype == np.float32
    for make in (
        lambda: means.Constant(slope),
        lambda: means.Linear(1.0),
        lambda: means.Linear(slope, [1.0, 2.0, 3.0]),
        lambda: means.Linear([1.0, 2.0])(x),
    ):
        with pytest.raises(InputError):
            make()
