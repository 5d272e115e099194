"""A model is replaced by a whole one or not at all, and by one run at a time."""

import contextlib
import sys
import threading

import pytest

from natgrad._cli import training
from natgrad._cli.folder import (
    CHECKPOINT,
    HISTORY,
    LOCK,
    MODEL,
    REPLACEMENT,
    RUN,
    SCAN,
    finish,
    in_use,
    working,
)
from natgrad._config import Run, dumps
from natgrad.errors import CheckpointError


FILES = (RUN, HISTORY, MODEL)


class Killed(BaseException):
    """As by a signal that no process hears: nothing is done after it."""


class Killer:
    """Ends what is done to files before the change of a certain number."""

    def __init__(self):
        self.left = None
        sys.addaudithook(self._hear)

    def _hear(self, event, _):
        if self.left is None or event not in ("os.rename", "os.remove", "os.rmdir"):
            return
        self.left -= 1
        if self.left < 0:
            raise Killed

    @contextlib.contextmanager
    def after(self, changes):
        self.left = changes
        try:
            yield
        finally:
            self.left = None


@pytest.fixture(scope="module")
def killer():
    return Killer()


def replaced(out):
    """A folder with an old model and an interrupted run, and a new one that ended."""
    for place, word in ((out, "old"), (out / REPLACEMENT, "new")):
        (place / CHECKPOINT / "5").mkdir(parents=True)
        for name in (*FILES, SCAN, f"{CHECKPOINT}/5/array"):
            (place / name).write_text(f"{word} {name}")
    return out / REPLACEMENT


def is_killed(killer, changes, action, *arguments):
    try:
        with killer.after(changes):
            action(*arguments)
    except Killed:
        return True
    return False


def completed(out):
    with in_use(out):
        pass


def test_a_kill_before_any_change_leaves_a_whole_model_that_the_next_run_completes(
    tmp_path, killer
):
    changes, was_killed = 0, True
    while was_killed:
        for again in (0, 2, 5, 9):
            out = tmp_path / f"{changes}-{again}"
            place = replaced(out)
            was_killed = is_killed(killer, changes, finish, place, out)
            assert (out / MODEL).read_text() in (f"old {MODEL}", f"new {MODEL}")
            is_decided = not place.exists()
            is_killed(killer, again, completed, out)
            assert (out / MODEL).read_text() in (f"old {MODEL}", f"new {MODEL}")
            completed(out)
            word = "new" if is_decided else "old"
            for name in FILES:
                assert (out / name).read_text() == f"{word} {name}"
            if is_decided:
                assert {path.name for path in out.iterdir()} == set(FILES)
            else:
                assert working(out) == place
        changes += 1
    assert changes > 10


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path):
    mine = [f".{name}.mine" for name in FILES] + ["notes.tmp", ".hidden.tmp", *FILES]
    left = [f".{name}.abcd_123.tmp" for name in (RUN, SCAN)]
    for name in [*mine, *left, f".{MODEL}.tmp", f"{HISTORY}.tmp"]:
        (tmp_path / name).touch()
    (tmp_path / f".{CHECKPOINT}.dropped" / "7").mkdir(parents=True)
    completed(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(mine)


def test_a_folder_in_use_is_refused_to_every_command(tmp_path):
    run, out = Run(str(tmp_path / "none.csv"), "y"), tmp_path / "out"
    place = replaced(out)
    (place / RUN).write_text(dumps(run))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    before.pop(out / LOCK, None)
    commands = {
        "train": lambda: training.train(run, out, False, False, False),
        "force": lambda: training.train(run, out, True, False, False),
        "train --resume": lambda: training.train(run, out, False, True, False),
        "resume": lambda: training.resume(out, False),
    }
    with in_use(out):
        for command in commands.values():
            with pytest.raises(CheckpointError, match="out is in use by process"):
                command()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_one_of_many_has_a_folder_at_a_time(tmp_path):
    inside, most, had = [], [], []

    def use():
        times = 0
        while times < 25:
            with contextlib.suppress(CheckpointError), in_use(tmp_path):
                inside.append(1)
                most.append(len(inside))
                times += 1
                inside.pop()
        had.append(times)

    users = [threading.Thread(target=use) for _ in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert max(most) == 1 and had == [25] * 8
    assert not list(tmp_path.iterdir())
