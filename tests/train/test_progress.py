"""What is shown of a run, in a terminal and in a file."""

import fcntl
import io
import os
import pty
import struct
import termios
import threading

import pytest

from natgrad.train import Record, _progress as module
from natgrad.train._compiled import Best, State, Tally
from natgrad.train._listeners import Moment
from natgrad.train._progress import Progress, Rows, announce, clock, summary


STATE = State(1, None, None, Tally(0, 0, 0, 0), Best(0, 0, None), None)
END = Moment(STATE, 0.0)


def record(step: int, **more) -> Record:
    return Record(step, 0.1, -0.5, step_size=0.25, steps_per_second=40.0, **more)


def a_run(**limits) -> None:
    with Progress(limits.get("steps"), limits.get("seconds")) as shown:
        for step in (1, 50, 100):
            shown.show(step, record(step, score=-0.4, halvings=3, refused=1))
        shown.end(END, "no new best in 3 records")


def in_a_terminal(monkeypatch, columns: int, use=a_run, **limits) -> str:
    """All that is written to a terminal so wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 20, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    seen = bytearray()

    def read() -> None:
        try:
            while part := os.read(ours, 4096):
                seen.extend(part)
        except OSError:  # the other end was closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        use(**limits)
    reader.join()
    os.close(ours)
    return seen.decode()


@pytest.mark.parametrize("columns", [60, 140])
def test_a_bar_stays_on_its_line_and_tells_all_there_is_room_for(monkeypatch, columns):
    text = in_a_terminal(monkeypatch, columns, steps=200)
    lines = [line for line in text.replace("\n", "").split("\r") if line.strip()]
    assert "compiling" in lines[0] and "ELBO/N -0.5" in lines[-1]
    assert all(len(line) <= columns for line in lines)
    wanted = ("held-out -0.4", "step 0.25", "halved 3", "refused 1", "40 steps/s")
    assert all(word in lines[-1] for word in wanted) or columns < 100


def test_a_run_of_minutes_is_measured_by_the_clock(monkeypatch):
    text = in_a_terminal(monkeypatch, 140, seconds=30.0)
    assert "/200" not in text and "no new best in 3 records" in text


def test_a_file_gets_a_line_now_and_then_and_one_at_the_end(monkeypatch):
    for seconds, expected in ((0.0, 3), (1000.0, 2)):
        monkeypatch.setattr(module, "SECONDS", seconds)
        file = io.StringIO()
        monkeypatch.setattr("sys.stderr", file)
        with Progress(100, None) as shown:
            for step in (1, 50, 100):
                shown.show(step, record(step))
            shown.end(END, "all steps taken")
        lines = file.getvalue().splitlines()
        assert len(lines) == expected
        assert lines[0].startswith("step 1/100  ELBO/N -0.5  step 0.25")
        assert lines[-1].startswith("step 100/100") and "all steps taken" in lines[-1]


def test_a_run_that_ends_itself_has_limits_and_no_share(monkeypatch):
    def use():
        with Progress(5000, None, ends_itself=True) as shown:
            shown.show(1, record(1))
            shown.show(37, record(37))
            shown.end(END, "converged")

    def by_the_clock():
        with Progress(None, 30.0, ends_itself=True) as shown:
            shown.show(37, record(37))

    text = in_a_terminal(monkeypatch, 140, by_the_clock)
    assert "37 steps [00:00]" in text and "%" not in text and "<" not in text
    text = in_a_terminal(monkeypatch, 140, use)
    assert "37 of at most 5000 steps" in text and "converged" in text
    assert "%" not in text and "<" not in text
    monkeypatch.setattr(module, "SECONDS", 0.0)
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    use()
    first, second, last = file.getvalue().splitlines()
    assert "left" not in first and "converged" in last
    assert second.startswith("step 37 of at most 5000") and "  at most 0" in second


def test_one_process_says_what_is_done_without_steps(monkeypatch, capsys):
    announce("all rows", is_shown=True)
    announce("nothing", is_shown=False)
    assert capsys.readouterr().err == "all rows\n"
    monkeypatch.setenv("NATGRAD_PROCESS_ID", "1")
    monkeypatch.setenv("NATGRAD_NUM_PROCESSES", "2")
    announce("all rows", is_shown=True)
    assert capsys.readouterr().err == ""


def test_words_are_few():
    assert summary(Record(1, 0.0, 1.23456)) == "ELBO/N 1.235"
    assert [clock(s) for s in (5.0, 65.0, 3665.0)] == ["00:05", "01:05", "1:01:05"]


def test_lines_tell_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    with Rows(10_000, 1000) as rows:
        rows.add(2000)
        rows.add(7000)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("row 3,000/10,000  ") and " rows/s  " in first
    assert last.startswith("row 10,000/10,000  ") and last.endswith("  00:00 left")


def test_a_bar_of_rows_stays_on_its_line(monkeypatch):
    def use():
        with Rows(10_000, 1000) as rows:
            rows.add(2000)
            rows.add(7000)

    text = in_a_terminal(monkeypatch, 80, use)
    lines = [line for line in text.replace("\n", "").split("\r") if line.strip()]
    assert "1.00k/10.0k" in lines[0] and "10.0k/10.0k" in lines[-1]
    assert " rows/s" in lines[-1] and all(len(line) <= 80 for line in lines)
