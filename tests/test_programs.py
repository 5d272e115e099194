"""A process that fits ever new shapes does not keep the programs of all of them."""

import sys

import jax
import jax.numpy as jnp
import pytest

from natgrad._runtime import programs


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts memory maps")
def test_programs_are_dropped_once_they_hold_too_many_memory_maps(monkeypatch):
    jax.clear_caches()
    monkeypatch.setattr(programs, "_after", [programs.memory_maps()])
    compiled = jax.jit(lambda x: (x * 2).sum())
    for size in range(1, 30):
        compiled(jnp.ones(size))
    held = programs.memory_maps()
    programs.limit_programs()
    assert programs.memory_maps() >= held  # far from the limit: all are kept
    monkeypatch.setattr(programs, "MAPS", 10)
    programs.limit_programs()
    assert programs.memory_maps() < held
    assert compiled(jnp.ones(3)) == 6
