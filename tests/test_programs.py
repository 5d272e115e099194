"""A process that fits ever new shapes keeps few programs of natgrad's own."""

import gc
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natgrad._runtime import programs


def memory_maps():
    return Path("/proc/self/maps").read_bytes().count(b"\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts memory maps")
@pytest.mark.parametrize("wrap", [programs.jit, programs.filter_jit])
def test_a_function_keeps_few_programs_and_they_leave_the_memory(wrap, monkeypatch):
    monkeypatch.setattr(programs, "PROGRAMS", 6)
    ours, theirs = wrap(lambda x: jnp.tanh(x).sum()), jax.jit(lambda x: (2 * x).sum())
    theirs(np.ones(3))
    held = []
    gc.freeze()  # what other tests left behind takes a second to look through
    for size in range(1, 3 * programs.PROGRAMS + 4):
        assert ours(np.ones(size)) == pytest.approx(size * np.tanh(1))
        gc.collect()
        held.append(memory_maps())
    gc.unfreeze()
    # Each program takes several; these are back to what they were, twice.
    later = held[programs.PROGRAMS + 1 :]
    assert min(later) <= held[0] + programs.PROGRAMS
    assert min(later[programs.PROGRAMS + 1 :]) <= held[0] + programs.PROGRAMS
    assert theirs._cache_size() == 1


def test_no_function_of_natgrad_keeps_its_programs_by_itself():
    source = Path(programs.__file__).parents[1]
    texts = {path: path.read_text("utf-8") for path in source.rglob("*.py")}
    decorated = re.compile(
        r"^(@|_?\w+ = )(functools\.partial\()?(jax\.jit|eqx\.filter_jit)", re.M
    )
    found = [path.name for path, text in texts.items() if decorated.search(text)]
    assert found == []
