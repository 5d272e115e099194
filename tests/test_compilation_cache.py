"""The compilation cache: other processes use it, and damaged entries are not used."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from natgrad import gp
from natgrad._runtime import compilation_cache as cache
from natgrad.sklearn import GPClassifier, GPRegressor


SETTINGS = ["jax_compilation_cache_dir", *cache.OPTIONS]

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder for the cache, with JAX's own cache switched off."""
    monkeypatch.setenv("NATGRAD_COMPILATION_CACHE", str(tmp_path / "compiled"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    forget()
    yield tmp_path / "compiled"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def forget():
    """All that a process knows and a new one does not."""
    jax.clear_caches()
    cache._own_folder.cache_clear()
    cache._published.clear()
    events.clear()


def computed(power=3):
    with cache.enabled():
        return np.asarray(jax.jit(lambda x: (x**power).sum())(np.arange(5.0)))


def counted(name):
    return sum(event.endswith(name) for event in events)


def entries(folder):
    return sorted(each for each in folder.iterdir() if not each.is_dir())


def test_a_program_is_compiled_once_for_all_processes(folder):
    first = computed()
    (entry,) = entries(folder)
    assert (counted("cache_misses"), counted("cache_hits")) == (1, 0)
    forget()
    np.testing.assert_array_equal(computed(), first)
    assert (counted("cache_misses"), counted("cache_hits")) == (0, 1)
    assert entries(folder) == [entry]


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "other"])
def test_a_damaged_entry_is_compiled_anew(damage, folder):
    first = computed()
    (entry,) = entries(folder)
    good = entry.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    entry.write_bytes(
        {"flipped": flipped, "cut": good[:-7], "empty": b"", "other": b"x" * 99}[damage]
    )
    forget()
    np.testing.assert_array_equal(computed(), first)
    assert (counted("cache_misses"), counted("cache_hits")) == (1, 0)
    (again,) = entries(folder)
    assert cache._digest(again.read_bytes()) == cache._parts(again)[1]


def test_only_what_is_compiled_inside_is_cached_and_settings_are_restored(folder):
    before = [getattr(jax.config, name) for name in SETTINGS]
    with cache.enabled(), cache.enabled():
        assert jax.config.jax_compilation_cache_dir
    assert [getattr(jax.config, name) for name in SETTINGS] == before
    jax.jit(lambda x: x + 4)(np.arange(3.0))
    assert entries(folder) == []


def test_estimators_use_the_cache_and_the_core_does_not(folder):
    x = np.linspace(-1, 1, 30)[:, None]
    model = gp.initialize(x, gp.likelihoods.Gaussian(), 5)
    gp.fit(model, (x, x[:, 0]), steps=2, progress=False)
    assert not folder.exists()
    fitted = GPRegressor(max_iter=2, verbose=False).fit(x, x[:, 0])
    mean = fitted.predict(x)
    kept = entries(folder)
    assert len(kept) >= 3
    forget()
    fitted = GPRegressor(max_iter=2, verbose=False).fit(x, x[:, 0])
    np.testing.assert_array_equal(fitted.predict(x), mean)
    assert counted("cache_misses") == 0
    assert entries(folder) == kept


def test_a_fit_compiles_few_programs(folder):
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(x[:, 0] + x[::-1, 1] > 0, "a", "b")
    model = GPClassifier(verbose=False).fit(x, y)
    model.predict_proba(x)
    # Initial values, steps, how many inducing inputs are enough, conditioning, classes,
    # and two logarithms: an operation outside of these would be a program of its own.
    assert counted("cache_misses") <= 8
    before = counted("compile_requests_use_cache")
    # Another table of nearly the same size: everything is there.
    model.fit(x[3:], y[3:]).predict_proba(x[3:])
    assert counted("compile_requests_use_cache") == before


def test_a_folder_of_the_users_own_is_left_alone(folder, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    computed()
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
    assert computed() == 100.0
    assert not folder.is_dir() or entries(folder) == []


def test_the_oldest_go_when_there_are_too_many(folder, monkeypatch):
    for power in range(2, 6):
        computed(power)
    known = entries(folder)
    for age, entry in enumerate(known):
        os.utime(entry, (age, age))
    size = sum(entry.stat().st_size for entry in known)
    monkeypatch.setattr(cache, "LIMIT", size)
    computed(7)
    left = entries(folder)
    assert known[-1] in left and known[0] not in left and {*left} - {*known}
    assert sum(entry.stat().st_size for entry in left) <= size


def test_processes_share_a_folder_and_one_may_be_killed(folder):
    script = """
import jax, numpy as np
from natgrad._runtime import compilation_cache as cache
with cache.enabled():
    for power in range(2, 12):
        print(jax.jit(lambda x: (x**power).sum())(np.arange(5.0)), flush=True)
"""
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    killed, *others = [start() for _ in range(3)]
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    said = [each.communicate()[0] for each in others]
    assert said[0] == said[1] and len(said[0].splitlines()) == 10
    for entry in entries(folder):
        assert cache._digest(entry.read_bytes()) == cache._parts(entry)[1]
    # What the killed one left is deleted in time.
    (left,) = folder.glob("process-*")
    os.utime(left, (0, 0))
    computed()
    assert not left.exists()


def test_the_folder_is_where_the_platform_has_caches(monkeypatch):
    monkeypatch.delenv("NATGRAD_COMPILATION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    if sys.platform == "linux":
        assert cache.folder() == Path("/somewhere/cache/natgrad/compiled")
