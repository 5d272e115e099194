"""The suite runs in 64 bits, and nothing is promoted behind our back."""

import jax
import pytest


jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def strict():
    with (
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
    ):
        yield
