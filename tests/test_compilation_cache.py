"""The compilation cache is JAX's own, in a folder that natgrad names once."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from natgrad._runtime import compilation_cache as cache
from natgrad.sklearn import GPClassifier
from tests.variants import variants


events: list[str] = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder for the cache, with none set in JAX."""
    monkeypatch.setenv("NATGRAD_COMPILATION_CACHE", str(tmp_path / "compiled"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    cache.use_folder.cache_clear()
    jax.clear_caches()
    events.clear()
    yield tmp_path / "compiled"
    cache.use_folder.cache_clear()
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


PROCESS = """
import sys
import jax, numpy as np
from natgrad.sklearn import GPRegressor

hits = []
jax.monitoring.register_event_listener(
    lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None
)
x = np.linspace(-1, 1, 30)[:, None]
fitted = GPRegressor(max_iter=2, verbose=False).fit(x, x[:, 0])
print(len(hits), fitted.predict(x).tolist())
"""


@pytest.mark.parametrize(
    "damage", variants([None, "flipped", "cut", "empty"], ["flipped"])
)
def test_a_second_process_compiles_less_and_predicts_the_same(damage, folder):
    def run():
        command = [sys.executable, "-c", PROCESS]
        # Of a small model no program takes the second from which JAX keeps one.
        env = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.split(" ", 1)

    first = run()
    entries = sorted(folder.glob("*-cache"))
    assert entries and first[0] == "0"
    for entry in entries if damage else ():
        good = bytearray(entry.read_bytes())
        flipped = good[:99] + bytes([good[99] ^ 1]) + good[100:]
        entry.write_bytes({"flipped": flipped, "cut": good[:-7], "empty": b""}[damage])
    again = run()
    assert again[1] == first[1]
    assert (int(again[0]) > 0) == (damage is None)


def test_a_fit_compiles_few_programs(folder):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    cache.use_folder()
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(x[:, 0] + x[::-1, 1] > 0, "a", "b")
    model = GPClassifier(verbose=False).fit(x, y)
    model.predict_proba(x)
    # Initial values, steps, how many inducing inputs are enough, conditioning, classes,
    # and two logarithms: an operation outside of these would be a program of its own.
    assert sum(event.endswith("cache_misses") for event in events) <= 8
    requests = [event.endswith("compile_requests_use_cache") for event in events]
    # Another table of nearly the same size: everything is there.
    model.fit(x[3:], y[3:]).predict_proba(x[3:])
    later = [event.endswith("compile_requests_use_cache") for event in events]
    assert sum(later) == sum(requests)


def test_nothing_but_the_folder_is_set(folder):
    before = dict(jax.config.values)
    cache.use_folder()
    assert jax.config.jax_compilation_cache_dir == str(folder)
    changed = {k for k, v in jax.config.values.items() if before.get(k) != v}
    assert changed <= {"jax_compilation_cache_dir"}


def test_a_folder_of_the_users_own_is_left_alone(folder, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    cache.use_folder()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not folder.exists()


@pytest.mark.parametrize("given", ["", "file", "open"])
def test_nothing_is_cached_without_a_safe_folder(given, folder, monkeypatch):
    if given == "file":  # or no rights, or a disk that is full
        folder.write_text("")
    elif given == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        monkeypatch.setenv("NATGRAD_COMPILATION_CACHE", "")
    cache.use_folder()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_folder_is_where_the_platform_has_caches(monkeypatch):
    monkeypatch.delenv("NATGRAD_COMPILATION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    if sys.platform == "linux":
        found = cache.folder()
        assert found is not None
        assert found.parent == Path("/somewhere/cache/natgrad/compiled")
